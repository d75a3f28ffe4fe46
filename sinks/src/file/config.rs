//! What a [`FileSink`](super::FileSink) is told: where logs go, how they are compressed, and its limits.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Configuration of a [`FileSink`](super::FileSink).
///
/// ```
/// use ballista_event_sinks::{Compression, FileSinkConfig};
///
/// let config = FileSinkConfig::new("/var/log/ballista").with_compression(Compression::None);
/// # let _ = config;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FileSinkConfig {
    /// Where the logs go. Made if it doesn't exist.
    pub directory: PathBuf,
    /// How they are compressed.
    pub compression: Compression,
    /// How many logs are held open at a time; 0 counts as 1. Each takes a file handle, and when compressed about
    /// 300 KiB of memory. With more jobs than that, those that have been quiet longest are closed until their next event.
    pub max_open_files: usize,
    /// How much of a log may wait for the next flush (bytes, before compression). What is beyond is written out at
    /// the next event.
    pub flush_bytes: usize,
}

impl FileSinkConfig {
    /// Default of [`max_open_files`](Self::max_open_files).
    pub const DEFAULT_MAX_OPEN_FILES: usize = 64;
    /// Default of [`flush_bytes`](Self::flush_bytes).
    pub const DEFAULT_FLUSH_BYTES: usize = 256 * 1024;

    /// Logs in this directory, with defaults for the rest.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            compression: Compression::default(),
            max_open_files: Self::DEFAULT_MAX_OPEN_FILES,
            flush_bytes: Self::DEFAULT_FLUSH_BYTES,
        }
    }

    /// Sets [`compression`](Self::compression).
    #[must_use]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets [`max_open_files`](Self::max_open_files).
    #[must_use]
    pub fn with_max_open_files(mut self, count: usize) -> Self {
        self.max_open_files = count;
        self
    }

    /// Sets [`flush_bytes`](Self::flush_bytes).
    #[must_use]
    pub fn with_flush_bytes(mut self, bytes: usize) -> Self {
        self.flush_bytes = bytes;
        self
    }
}

/// How event logs are compressed. As text, `gzip` or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// As gzip, which `zcat` reads.
    Gzip(GzipLevel),
    /// Not at all: logs are plain lines, which the stock history server reads.
    None,
}

impl Compression {
    /// Gzip at a level, from 1 (fastest) to 9 (smallest).
    ///
    /// # Errors
    ///
    /// When `level` is neither.
    pub fn gzip(level: u32) -> Result<Self, CompressionError> {
        match u8::try_from(level) {
            Ok(level @ 1..=9) => Ok(Self::Gzip(GzipLevel(level))),
            _ => Err(CompressionError::Level { level }),
        }
    }

    /// What the name of a finished log ends with.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Gzip(_) => ".eventlog.gz",
            Self::None => ".eventlog",
        }
    }
}

/// Gzip at [`GzipLevel::default`].
impl Default for Compression {
    fn default() -> Self {
        Self::Gzip(GzipLevel::default())
    }
}

impl FromStr for Compression {
    type Err = CompressionError;

    fn from_str(text: &str) -> Result<Self, CompressionError> {
        match text {
            "gzip" => Ok(Self::default()),
            "none" => Ok(Self::None),
            _ => Err(CompressionError::Unknown { name: text.to_owned() }),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gzip(_) => "gzip",
            Self::None => "none",
        })
    }
}

/// A level of gzip that exists; see [`Compression::gzip`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GzipLevel(u8);

impl GzipLevel {
    /// The level, from 1 to 9.
    pub fn get(self) -> u32 {
        self.0.into()
    }
}

/// 3: event logs repeat themselves so much that higher levels cost a lot of time for a little space.
impl Default for GzipLevel {
    fn default() -> Self {
        Self(3)
    }
}

/// A text or a number is no [`Compression`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompressionError {
    /// No compression has this name.
    #[error("unknown compression {name:?}: use \"gzip\" or \"none\"")]
    Unknown {
        /// The name.
        name: String,
    },
    /// Gzip has no such level.
    #[error("there is no gzip level {level}: use 1 (fastest) to 9 (smallest)")]
    Level {
        /// The level.
        level: u32,
    },
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn compression_as_text() {
        for name in ["gzip", "none"] {
            assert_eq!(name.parse::<Compression>().unwrap().to_string(), name);
        }
        assert_eq!(
            "zip".parse::<Compression>().unwrap_err().to_string(),
            "unknown compression \"zip\": use \"gzip\" or \"none\""
        );
    }

    #[test]
    fn gzip_levels() {
        for level in 1..=9 {
            assert!(matches!(Compression::gzip(level), Ok(Compression::Gzip(is)) if is.get() == level));
        }
        for level in [0, 10, 257] {
            assert!(Compression::gzip(level).is_err());
        }
        assert_eq!(
            Compression::gzip(12).unwrap_err().to_string(),
            "there is no gzip level 12: use 1 (fastest) to 9 (smallest)"
        );
    }
}
