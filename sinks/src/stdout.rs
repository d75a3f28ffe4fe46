//! [`StdoutSink`]: one JSON line an event on standard output.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use async_trait::async_trait;
use ballista_event_sink::event::Event;
use ballista_event_sink::sink::{BoxError, EventSink, SinkError};

/// Capacity that the buffer keeps between batches (bytes). A JobEnd can be megabytes; that is given back.
const KEEP_CAPACITY: usize = 1 << 20;

/// Writes one JSON line an event to standard output, for a pipe.
///
/// Lines are whole and none is written twice, even when a write is cut short: what is missing of a line is kept and
/// comes first the next time. Every batch is flushed. When nobody reads any more (the pipe is closed) the sink ends.
///
/// A scheduler that uses this sink must log elsewhere, to standard error or to a file.
#[derive(Debug, Default)]
pub struct StdoutSink {
    lines: Lines,
}

impl StdoutSink {
    /// A sink on this process' standard output.
    pub fn new() -> Self {
        Self::default()
    }
}

/// A clone starts at the beginning of a line: a torn line belongs to the sink that tore it.
impl Clone for StdoutSink {
    fn clone(&self) -> Self {
        Self::new()
    }
}

#[async_trait]
impl EventSink for StdoutSink {
    async fn write(&mut self, batch: &[Arc<Event>]) -> Result<(), SinkError> {
        self.lines.write(&mut io::stdout().lock(), batch)
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        self.lines.push_out(&mut io::stdout().lock()).map_err(sink_error)
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        self.flush().await
    }
}

/// What is between the sink and the stream.
#[derive(Debug, Default)]
struct Lines {
    /// Empty between calls, but for the end of a line that was cut short: never more than one line.
    buffer: Vec<u8>,
    /// Where lines end in `buffer`, while a batch is being written.
    ends: Vec<usize>,
}

impl Lines {
    fn write(&mut self, out: &mut impl Write, batch: &[Arc<Event>]) -> Result<(), SinkError> {
        self.push_out(out).map_err(sink_error)?;

        self.ends.clear();
        let mut unserialisable: Option<BoxError> = None;
        for event in batch {
            if let Err(error) = event.write_json_line(&mut self.buffer) {
                unserialisable = Some(format!("{} event can't be written as JSON: {error}", event.kind()).into());
                break;
            }
            self.ends.push(self.buffer.len());
        }

        let (sent, outcome) = send(out, &self.buffer);
        // A line that began to go out is ours to complete; those behind it are handed over again.
        let whole = self.ends.partition_point(|&end| end <= sent);
        let torn = whole < self.ends.len() && sent > self.ends[..whole].last().copied().unwrap_or(0);
        let taken = whole + usize::from(torn);
        self.buffer.truncate(if torn { self.ends[whole] } else { sent });
        self.discard(sent);

        if let Err(error) = outcome {
            // When every event is taken over, there is nothing that the bus could hand over again: the rest of the
            // last line goes out, or fails aloud, at the next call, which is a flush within about a second.
            if taken < batch.len() || error.kind() == ErrorKind::BrokenPipe {
                return Err(sink_error(error).after(taken));
            }
        } else if let Err(error) = out.flush()
            && error.kind() == ErrorKind::BrokenPipe
        {
            // Other errors: as above, every call begins and every flush ends with a flush of the stream.
            return Err(sink_error(error).after(taken));
        }
        match unserialisable {
            Some(error) if taken < batch.len() => Err(SinkError::rejected(error).after(taken)),
            _ => Ok(()),
        }
    }

    /// Completes a line that was cut short, and flushes the stream.
    fn push_out(&mut self, out: &mut impl Write) -> io::Result<()> {
        let (sent, outcome) = send(out, &self.buffer);
        self.discard(sent);
        outcome?;
        out.flush()
    }

    fn discard(&mut self, sent: usize) {
        self.buffer.drain(..sent);
        self.buffer.shrink_to(KEEP_CAPACITY);
    }
}

/// Writes as much of `bytes` as goes, and says how much that was.
fn send(out: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut sent = 0;
    while sent < bytes.len() {
        match out.write(&bytes[sent..]) {
            Ok(0) => return (sent, Err(ErrorKind::WriteZero.into())),
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (sent, Err(error)),
        }
    }
    (sent, Ok(()))
}

fn sink_error(error: io::Error) -> SinkError {
    if error.kind() == ErrorKind::BrokenPipe {
        SinkError::fatal(format!(
            "could not write events to standard output: {error}; nobody reads them any more, so the stdout sink ends: \
             restart the scheduler with a reader behind the pipe, or with another sink"
        ))
    } else {
        SinkError::transient(format!("could not write events to standard output: {error}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{lines_of, queued, stage_start};

    /// Takes `room` bytes in writes of at most `step`, then fails with `errno`.
    struct Pipe {
        taken: Vec<u8>,
        room: usize,
        step: usize,
        errno: i32,
    }

    const ENOSPC: i32 = 28;
    const EPIPE: i32 = 32;

    impl Pipe {
        fn new(room: usize, errno: i32) -> Self {
            Self { taken: Vec::new(), room, step: 7, errno }
        }
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let left = self.room - self.taken.len();
            if left == 0 {
                return Err(io::Error::from_raw_os_error(self.errno));
            }
            let count = bytes.len().min(left).min(self.step);
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn batch() -> Vec<Arc<Event>> {
        vec![queued("j"), stage_start("j", 1), stage_start("j", 2)]
    }

    #[test]
    fn a_cut_at_any_byte_neither_tears_nor_repeats_a_line() {
        let batch = batch();
        let expected = lines_of(&batch);
        for room in 0..expected.len() {
            let mut pipe = Pipe::new(room, ENOSPC);
            let mut lines = Lines::default();
            let taken = match lines.write(&mut pipe, &batch) {
                Ok(()) => batch.len(),
                Err(error) => {
                    assert!(matches!(error, SinkError::Transient { .. }));
                    assert!(error.written() < batch.len());
                    error.written()
                }
            };
            assert!(lines.buffer.len() <= expected.len() - room);
            pipe.room = usize::MAX;
            match batch.get(taken..) {
                None | Some([]) => lines.push_out(&mut pipe).unwrap(),
                Some(rest) => lines.write(&mut pipe, rest).unwrap(),
            }
            assert_eq!(pipe.taken, expected, "cut at byte {room}");
            assert!(lines.buffer.is_empty());
        }
    }

    #[test]
    fn while_the_stream_is_full_nothing_more_is_taken_over() {
        let batch = batch();
        let mut pipe = Pipe::new(10, ENOSPC);
        let mut lines = Lines::default();
        assert_eq!(lines.write(&mut pipe, &batch).unwrap_err().written(), 1);
        let again = lines.write(&mut pipe, &batch[1..]).unwrap_err();
        assert_eq!(again.written(), 0);
        assert_eq!(
            again.to_string(),
            "could not write events to standard output: No space left on device (os error 28)"
        );
        assert!(lines.push_out(&mut pipe).is_err());
    }

    #[test]
    fn a_closed_pipe_ends_the_sink() {
        let batch = batch();
        let first = lines_of(&batch[..1]).len();
        let mut pipe = Pipe::new(first, EPIPE);
        let error = Lines::default().write(&mut pipe, &batch).unwrap_err();
        assert!(matches!(error, SinkError::Fatal { written: 1, .. }));
        assert_eq!(
            error.to_string(),
            "could not write events to standard output: Broken pipe (os error 32); nobody reads them any more, so the \
             stdout sink ends: restart the scheduler with a reader behind the pipe, or with another sink"
        );
    }
}
