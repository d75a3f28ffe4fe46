//! One job's log: a file, what waits to be written to it, and the steps that end it.
//!
//! Encoding happens in memory and doesn't fail; everything that touches the disk may fail, and goes on from where it
//! stopped when it is called again. So a caller makes room *before* it encodes an event: a failure then means that the
//! event was not taken over, and can be handed over again.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use super::config::Compression;
use super::disk::{self, DiskError};
use super::encoder::Encoder;
use super::executors::Introduced;
use super::ledger::Ledger;
use super::name::LogPaths;
use super::refusal::Reason;

/// Bytes that may wait to be written before the next event has to wait too.
const MAX_WAITING: usize = 64 * 1024;

/// Why a log did not take an event.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The disk failed, and may work later.
    Disk(DiskError),
    /// This event and all others of its job can't be written.
    Job(Reason),
    /// This event can't be written, whichever its log.
    Event(String),
}

impl From<DiskError> for Trouble {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

/// How far a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its job runs.
    Running,
    /// Its JobEnd is encoded and the member finished.
    Ended,
    /// All of it is on the disk.
    Synced,
    /// It has its final name.
    Renamed,
    /// So does the disk.
    Done,
    /// It can't be continued.
    Torn,
}

pub(super) struct JobLog {
    pub(super) job_id: Arc<str>,
    /// The registrations of executors that it has.
    pub(super) introduced: Introduced,
    /// When it was last used, by the writer's clock.
    pub(super) used: u64,
    paths: LogPaths,
    file: File,
    encoder: Encoder,
    stage: Stage,
    ledger: Arc<Ledger>,
}

impl JobLog {
    /// Takes charge of an open log that the ledger says is held.
    pub(super) fn new(
        job_id: &str,
        paths: LogPaths,
        file: File,
        compression: Compression,
        introduced: Introduced,
        ledger: Arc<Ledger>,
    ) -> Self {
        let encoder = Encoder::new(compression);
        Self { job_id: job_id.into(), introduced, used: 0, paths, file, encoder, stage: Stage::Running, ledger }
    }

    /// Whether its job runs, so that lines can be added.
    pub(super) fn is_running(&self) -> bool {
        self.stage == Stage::Running
    }

    /// Whether it is finished, down to the disk.
    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Writes out so much that one more event may be encoded.
    pub(super) fn make_room(&mut self, flush_bytes: usize) -> Result<(), Trouble> {
        if self.encoder.unsynced() >= flush_bytes {
            self.flush()
        } else if self.encoder.waiting().len() > MAX_WAITING {
            Ok(self.drain()?)
        } else {
            Ok(())
        }
    }

    /// Encodes whole lines.
    pub(super) fn push(&mut self, lines: &[u8]) -> Result<(), Trouble> {
        self.encode(|encoder| encoder.push(lines))
    }

    /// Encodes the last lines. From now on there is only [`conclude`](Self::conclude).
    pub(super) fn push_last(&mut self, lines: &[u8]) -> Result<(), Trouble> {
        self.encode(|encoder| {
            encoder.push(lines)?;
            encoder.finish()
        })?;
        self.stage = Stage::Ended;
        Ok(())
    }

    /// Makes a sync point and writes all that is before it.
    pub(super) fn flush(&mut self) -> Result<(), Trouble> {
        self.encode(Encoder::sync)?;
        Ok(self.drain()?)
    }

    /// Takes the steps that are left between the JobEnd's encoding and a finished log. Does nothing to a running log.
    pub(super) fn conclude(&mut self) -> Result<(), Trouble> {
        loop {
            self.stage = match self.stage {
                Stage::Ended => {
                    self.drain()?;
                    disk::sync(&self.file, &self.paths.running)?;
                    Stage::Synced
                }
                Stage::Synced => {
                    self.rename()?;
                    Stage::Renamed
                }
                Stage::Renamed => {
                    disk::sync_directory(self.directory())?;
                    Stage::Done
                }
                Stage::Running | Stage::Done | Stage::Torn => return Ok(()),
            };
        }
    }

    /// Gives the log its final name, which must be free.
    ///
    /// Looking first and renaming then is no race: only who made the running file, which one process can, gives a
    /// log its final name. A hard link would refuse an existing name by itself, but not every file system has them, and
    /// a crash would leave a log by both names.
    fn rename(&self) -> Result<(), Trouble> {
        if disk::exists(&self.paths.finished)? {
            return Err(Trouble::Job(Reason::Taken));
        }
        disk::rename(&self.paths.running, &self.paths.finished).map_err(|error| missing(error, self.directory()))
    }

    /// Leaves the log so that it can be continued, or finishes it when its job has ended.
    pub(super) fn leave(&mut self) -> Result<(), Trouble> {
        if self.is_running() {
            self.encode(Encoder::finish)?;
            self.drain()?;
        }
        self.conclude()
    }

    /// As [`leave`](Self::leave), down to the disk.
    pub(super) fn close(&mut self) -> Result<(), Trouble> {
        self.leave()?;
        if self.is_running() {
            disk::sync(&self.file, &self.paths.running)?;
        }
        Ok(())
    }

    /// Gives the log up: nothing more is written to it.
    pub(super) fn abandon(&mut self) {
        if !matches!(self.stage, Stage::Renamed | Stage::Done) {
            self.stage = Stage::Torn;
        }
    }

    /// What can be written without waiting for the next sync point is written.
    fn drain(&mut self) -> Result<(), DiskError> {
        while !self.encoder.waiting().is_empty() {
            let count = disk::write(&self.file, &self.paths.running, self.encoder.waiting())?;
            self.encoder.advance(count);
        }
        Ok(())
    }

    fn encode(&mut self, run: impl FnOnce(&mut Encoder) -> io::Result<()>) -> Result<(), Trouble> {
        run(&mut self.encoder).map_err(|error| {
            // Compressing to memory doesn't fail. Should it, what the encoder holds can't be trusted.
            tracing::error!(%error, "event log {} could not be compressed", self.paths.running.display());
            self.stage = Stage::Torn;
            Trouble::Job(Reason::Torn)
        })
    }

    fn directory(&self) -> &Path {
        directory(&self.paths)
    }
}

/// A log is left whole whatever becomes of its sink: a clone may have to continue it after a panic.
impl Drop for JobLog {
    fn drop(&mut self) {
        let left = self.leave();
        match self.stage {
            Stage::Running if left.is_ok() => self.ledger.leave(&self.job_id, std::mem::take(&mut self.introduced)),
            Stage::Renamed | Stage::Done => self.ledger.forget(&self.job_id),
            Stage::Running | Stage::Ended | Stage::Synced | Stage::Torn => self.ledger.tear(&self.job_id),
        }
    }
}

/// Where a log is.
pub(super) fn directory(paths: &LogPaths) -> &Path {
    paths.running.parent().unwrap_or(Path::new("."))
}

/// A running log that can't be found: may come back with its directory, or is gone for good.
pub(super) fn missing(error: DiskError, directory: &Path) -> Trouble {
    if error.kind() == ErrorKind::NotFound && directory.is_dir() {
        Trouble::Job(Reason::Removed)
    } else {
        Trouble::Disk(error)
    }
}
