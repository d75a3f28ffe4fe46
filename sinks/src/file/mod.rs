//! [`FileSink`]: one log for each job, as the history server reads them.
//!
//! # Names
//!
//! A job writes to `<job_id>.eventlog.gz.running`, which is renamed to `<job_id>.eventlog.gz` when the job has ended;
//! without compression, `<job_id>.eventlog.running` and `<job_id>.eventlog`, as stock Ballista has it. A reader
//! that sees a final name sees a whole log.
//!
//! Job ids come from outside. In a name, ASCII letters, digits, `_`, `-` and (not in front) `.` stand for themselves,
//! any other byte is `%` and two hexadecimal digits, and an empty id is `%`: no id leads out of the directory,
//! and no two share a name. Ids whose names would be longer than 200 bytes are rejected.
//!
//! The directory is made with mode 0750 if need be, files have mode 0640 (less the umask).
//!
//! # Contents
//!
//! One event a line, as [`Event::write_json_line`] has it: the job's events in the order in which they came, JobQueued or
//! JobStart first, JobEnd last.
//!
//! A log is self-contained: it also tells of the executors that worked for its job. The sink remembers who is in the
//! cluster, and writes an executor's ExecutorRegistered right before the first TaskEnd that names it. Executors that
//! join or leave are also written to all logs that are open at that time; a log that is closed for the time being
//! (see below) misses that, and makes up for joins when the executor's first TaskEnd comes.
//!
//! # Life cycle
//!
//! A log begins with the first event of its job. The running file must not exist: if it does, another scheduler or
//! an earlier run owns it, and the job's events are rejected rather than mixed into it. They are rejected also
//! when the job's finished log exists, for then they come too late.
//!
//! At JobEnd the compressed stream is finished and written, the file synced, renamed (never over an existing file), and
//! the directory synced; only then is the JobEnd taken over. When a step fails, the JobEnd is handed over again
//! and goes on with that step.
//!
//! # Members
//!
//! A compressed log is one or several gzip members in a row, which `zcat` and every multi-member reader take for one file.
//! More than one there are when the log was closed in between: to keep the number of open files down, or because
//! the sink was replaced after a panic. Lines never span members.
//!
//! # Sync points
//!
//! Every flush (the bus asks for one about once a second), and every event that comes when more than
//! [`flush_bytes`](FileSinkConfig::flush_bytes) wait, makes a sync point: all that was taken over before can be decoded
//! from the file as it is. A file is synced to the disk at JobEnd, and if it is open when the sink is closed; not at each
//! flush.
//!
//! # What a crash leaves
//!
//! When the scheduler dies, running logs are readable up to the last sync point, and keep their `.running` names;
//! nobody continues them. When the machine dies, up to what the operating system had written; finished logs
//! are on the disk. An orderly shutdown leaves running logs whole.
//!
//! # When the disk fails
//!
//! A full disk, a lost directory, a lack of file handles may pass: the sink keeps what it has taken over, takes no more
//! of the log that is stuck, and goes on from the very byte when it can. Nothing is written twice and nothing is left
//! out in between.
//!
//! # Limits
//!
//! - [`max_open_files`](FileSinkConfig::max_open_files) logs are open at a time; of the others that were begun, the job
//!   id and which of the present executors they know are kept.
//! - 64 KiB of a log may wait to be written before its next event has to wait; so that, and one event, is what each
//!   takes besides its compressor.
//! - The last 1024 jobs whose events were rejected, or that ended, are remembered; others are looked for on the disk again.
//!
//! # Example
//!
//! ```
//! use ballista_event_sinks::{FileSink, FileSinkConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path();
//! let sink = FileSink::new(FileSinkConfig::new(directory.join("event-logs")))?;
//! # let _ = sink;
//! # Ok(())
//! # }
//! ```

mod config;
mod disk;
mod encoder;
mod error;
mod executors;
mod ledger;
mod log;
mod name;
mod refusal;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use ballista_event_sink::event::Event;
use ballista_event_sink::sink::{EventSink, SinkError};

pub use config::{Compression, CompressionError, FileSinkConfig, GzipLevel};
pub use error::FileSinkError;
use writer::Writer;

/// Writes one log for each job. See the [module](self) for what they look like.
///
/// A clone has no log open. It can continue the logs that this sink began, once this sink is dropped.
pub struct FileSink {
    writer: Writer,
}

impl FileSink {
    /// A sink that is ready to write: makes the directory if need be, and tries whether files can be made in it.
    ///
    /// # Errors
    ///
    /// [`FileSinkError`] says what is wrong with the directory.
    pub fn new(mut config: FileSinkConfig) -> Result<Self, FileSinkError> {
        if config.directory.as_os_str().is_empty() {
            return Err(FileSinkError::NoPath);
        }
        // Should the process change its working directory, logs stay where they are.
        if let Ok(absolute) = std::path::absolute(&config.directory) {
            config.directory = absolute;
        }
        prepare(&config.directory)?;
        Ok(Self { writer: Writer::new(config) })
    }
}

/// Makes the directory, and does in it once what the end of a job will need.
fn prepare(directory: &Path) -> Result<(), FileSinkError> {
    let path = || directory.to_owned();
    if let Err(error) = disk::create_directory(directory) {
        return Err(match error.kind() {
            ErrorKind::AlreadyExists => FileSinkError::NotADirectory { path: path() },
            _ => FileSinkError::Create { path: path(), error },
        });
    }
    let not_usable = |problem: String| FileSinkError::NotUsable { path: path(), problem };
    // No job's log begins with a dot. The time is there for the remains of a process with our number.
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let probe = directory.join(format!(".probe-{}-{nanos}", std::process::id()));
    disk::create(&probe).map_err(|error| not_usable(format!("can't create files there: {}", error.error)))?;
    fs::remove_file(&probe).map_err(|error| not_usable(format!("can't remove {}: {error}", probe.display())))?;
    disk::sync_directory(directory).map_err(|error| not_usable(format!("can't sync it: {}", error.error)))
}

impl Clone for FileSink {
    fn clone(&self) -> Self {
        Self { writer: self.writer.fresh() }
    }
}

impl fmt::Debug for FileSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSink")
            .field("config", self.writer.config())
            .field("open_logs", &self.writer.open_logs())
            .finish()
    }
}

#[async_trait]
impl EventSink for FileSink {
    async fn write(&mut self, batch: &[Arc<Event>]) -> Result<(), SinkError> {
        for (taken, event) in batch.iter().enumerate() {
            self.writer.take(event).map_err(|error| error.after(taken))?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        self.writer.flush()
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        self.writer.close()
    }
}
