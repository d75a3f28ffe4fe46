//! From lines to the bytes of a log, some of which wait to be written.

use std::io::{self, Write};

use flate2::write::GzEncoder;

use super::config::Compression;

/// Capacity that a buffer keeps once it is empty (bytes). A JobEnd can be megabytes; that is given back.
const KEEP_CAPACITY: usize = 256 * 1024;

/// Encodes lines, and keeps the bytes until they are written.
///
/// All of it is in memory, so nothing here fails but a broken compressor.
pub(super) struct Encoder {
    codec: Codec,
    /// Bytes of the log, of which the first `written` are in the file.
    bytes: Vec<u8>,
    written: usize,
    /// Bytes of lines since the last sync point.
    unsynced: usize,
}

enum Codec {
    Plain,
    /// A member is begun by the first line after the last one was finished.
    Gzip {
        level: flate2::Compression,
        member: Option<Box<GzEncoder<Vec<u8>>>>,
    },
}

impl Encoder {
    pub(super) fn new(compression: Compression) -> Self {
        let codec = match compression {
            Compression::Gzip(level) => Codec::Gzip { level: flate2::Compression::new(level.get()), member: None },
            Compression::None => Codec::Plain,
        };
        Self { codec, bytes: Vec::new(), written: 0, unsynced: 0 }
    }

    /// Encodes whole lines.
    pub(super) fn push(&mut self, lines: &[u8]) -> io::Result<()> {
        match &mut self.codec {
            Codec::Plain => self.bytes.extend_from_slice(lines),
            Codec::Gzip { level, member } => {
                let member = member.get_or_insert_with(|| Box::new(GzEncoder::new(Vec::new(), *level)));
                member.write_all(lines)?;
                self.bytes.append(member.get_mut());
            }
        }
        self.unsynced += lines.len();
        Ok(())
    }

    /// Makes a sync point: what comes out so far can be decoded by itself, to the last line.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if let Codec::Gzip { member: Some(member), .. } = &mut self.codec
            && self.unsynced > 0
        {
            member.flush()?;
            self.bytes.append(member.get_mut());
        }
        self.unsynced = 0;
        Ok(())
    }

    /// Finishes the member, if one is begun: what comes out so far is a whole file.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if let Codec::Gzip { member, .. } = &mut self.codec
            && let Some(member) = member.take()
        {
            self.bytes.append(&mut member.finish()?);
        }
        self.unsynced = 0;
        Ok(())
    }

    /// Bytes of lines since the last sync point.
    pub(super) fn unsynced(&self) -> usize {
        self.unsynced
    }

    /// The bytes that wait to be written.
    pub(super) fn waiting(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// So many more bytes are in the file.
    pub(super) fn advance(&mut self, count: usize) {
        self.written += count;
        if self.waiting().is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(KEEP_CAPACITY);
            self.written = 0;
        }
    }
}
