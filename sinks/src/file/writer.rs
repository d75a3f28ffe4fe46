//! The logs that one clone of the sink writes, and which events go into which.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ballista_event_sink::event::{Event, EventData};
use ballista_event_sink::sink::SinkError;

use super::config::FileSinkConfig;
use super::disk::{self, DiskError};
use super::executors::{Introduced, Roster};
use super::ledger::{Claim, Ledger};
use super::log::{self, JobLog, Trouble};
use super::name::LogPaths;
use super::refusal::{Reason, RefusedJobs};

/// Capacity that the buffer for lines keeps between events (bytes). A JobEnd can be megabytes; that is given back.
const KEEP_CAPACITY: usize = 1 << 20;

pub(super) struct Writer {
    config: Arc<FileSinkConfig>,
    /// Shared by all clones, as is the roster: facts about the directory and the cluster, not places in a stream.
    ledger: Arc<Ledger>,
    roster: Arc<Mutex<Roster>>,
    open: HashMap<Arc<str>, JobLog>,
    refused: RefusedJobs,
    /// Ticks with every event of a job.
    clock: u64,
    /// The lines of one event. Serialised before the encoder sees any of it, so that one that fails tears no log.
    lines: Vec<u8>,
}

impl Writer {
    pub(super) fn new(config: FileSinkConfig) -> Self {
        Self::with(Arc::new(config), Arc::default(), Arc::default())
    }

    /// A writer that has no log open, but can continue those that this one leaves.
    pub(super) fn fresh(&self) -> Self {
        Self::with(Arc::clone(&self.config), Arc::clone(&self.ledger), Arc::clone(&self.roster))
    }

    fn with(config: Arc<FileSinkConfig>, ledger: Arc<Ledger>, roster: Arc<Mutex<Roster>>) -> Self {
        let (open, refused) = Default::default();
        Self { config, ledger, roster, open, refused, clock: 0, lines: Vec::new() }
    }

    pub(super) fn config(&self) -> &FileSinkConfig {
        &self.config
    }

    pub(super) fn open_logs(&self) -> usize {
        self.open.len()
    }

    #[cfg(test)]
    pub(super) fn is_open(&self, job_id: &str) -> bool {
        self.open.contains_key(job_id)
    }

    /// How many registrations of executors the log of this job remembers.
    #[cfg(test)]
    pub(super) fn introduced(&self, job_id: &str) -> usize {
        self.open[job_id].introduced.len()
    }

    /// Takes over one event.
    pub(super) fn take(&mut self, event: &Arc<Event>) -> Result<(), SinkError> {
        match event.job_id() {
            Some(job_id) => self.take_of_job(job_id, event),
            None => self.take_of_cluster(event),
        }
    }

    fn take_of_job(&mut self, job_id: &str, event: &Event) -> Result<(), SinkError> {
        let opened = match self.open.remove(job_id) {
            Some(log) => Ok(log),
            None => self.open(job_id),
        };
        let mut log = match opened {
            Ok(log) => log,
            Err(trouble) => return Err(self.error(trouble, job_id, event)),
        };
        self.clock += 1;
        log.used = self.clock;

        let outcome = self.append(&mut log, event);
        match &outcome {
            Ok(()) if log.is_done() => self.refused.add(job_id, Reason::Finished),
            Err(Trouble::Job(_)) => log.abandon(),
            _ => {
                self.open.insert(Arc::clone(&log.job_id), log);
                return outcome.map_err(|trouble| self.error(trouble, job_id, event));
            }
        }
        // Tells the ledger what became of the log.
        drop(log);
        outcome.map_err(|trouble| self.error(trouble, job_id, event))
    }

    /// Opens the log of a job: begins it, or goes on with one that was closed to make way for others.
    fn open(&mut self, job_id: &str) -> Result<JobLog, Trouble> {
        if let Some(reason) = self.refused.reason(job_id) {
            return Err(Trouble::Job(reason));
        }
        let Some(paths) = LogPaths::new(&self.config.directory, self.config.compression, job_id) else {
            return Err(Trouble::Job(Reason::TooLong));
        };
        self.make_way()?;
        let (file, introduced) = match self.ledger.hold(job_id) {
            Claim::Continue(introduced) => match disk::append(&paths.running) {
                Ok(file) => (file, introduced),
                Err(error) => {
                    self.ledger.leave(job_id, introduced);
                    return Err(log::missing(error, log::directory(&paths)));
                }
            },
            Claim::Held => return Err(Trouble::Job(Reason::Held)),
            Claim::Torn => return Err(Trouble::Job(Reason::Torn)),
            Claim::Unknown => {
                if disk::exists(&paths.finished)? {
                    return Err(Trouble::Job(Reason::Finished));
                }
                let file = disk::create(&paths.running).map_err(|error| match error.kind() {
                    ErrorKind::AlreadyExists => Trouble::Job(Reason::Foreign),
                    _ => Trouble::Disk(error),
                })?;
                self.ledger.begin(job_id);
                (file, Introduced::new())
            }
        };
        let (compression, ledger) = (self.config.compression, Arc::clone(&self.ledger));
        Ok(JobLog::new(job_id, paths, file, compression, introduced, ledger))
    }

    /// Closes the log that has been quiet longest, if no more may be open. It stays open while that fails.
    fn make_way(&mut self) -> Result<(), Trouble> {
        if self.open.len() < self.config.max_open_files.max(1) {
            return Ok(());
        }
        // A log that has ended waits for its JobEnd to be handed over again, and is gone then.
        let quiet = self.open.values_mut().filter(|log| log.is_running()).min_by_key(|log| log.used);
        let Some(log) = quiet else { return Ok(()) };
        let job_id = Arc::clone(&log.job_id);
        match log.leave() {
            Err(Trouble::Disk(error)) => return Err(error.into()),
            Err(_) => self.give_up(&job_id),
            Ok(()) => {
                lock(&self.roster).prune(&mut log.introduced);
                self.open.remove(&job_id);
            }
        }
        Ok(())
    }

    fn append(&mut self, log: &mut JobLog, event: &Event) -> Result<(), Trouble> {
        let last = matches!(event.data(), EventData::JobEnd(_));
        if !log.is_running() {
            // The JobEnd is encoded, and something failed behind it. It is handed over again, or was given up.
            log.conclude()?;
            return if last { Ok(()) } else { Err(Trouble::Job(Reason::Finished)) };
        }

        self.lines.clear();
        self.lines.shrink_to(KEEP_CAPACITY);
        let mut introduces = None;
        if let EventData::TaskEnd(task) = event.data()
            && let Some(executor) = lock(&self.roster).get(&task.executor_id)
            && !log.introduced.contains(&executor.number)
        {
            serialise(&executor.event, &mut self.lines)?;
            introduces = Some(executor.number);
        }
        serialise(event, &mut self.lines)?;

        log.make_room(self.config.flush_bytes)?;
        if last {
            log.push_last(&self.lines)?;
            return log.conclude();
        }
        log.push(&self.lines)?;
        log.introduced.extend(introduces);
        Ok(())
    }

    /// Executors that join or leave are noted, and written to all logs that are open.
    fn take_of_cluster(&mut self, event: &Arc<Event>) -> Result<(), SinkError> {
        if !matches!(event.data(), EventData::ExecutorRegistered(_) | EventData::ExecutorRemoved(_)) {
            let kind = event.kind();
            return Err(SinkError::rejected(format!("{kind} event names no job, so there is no event log for it")));
        }
        self.lines.clear();
        if let Err(Trouble::Event(text)) = serialise(event, &mut self.lines) {
            return Err(SinkError::rejected(text));
        }
        // All logs get the line or none, lest it be handed over again: first what may fail, then what doesn't.
        let flush_bytes = self.config.flush_bytes;
        self.each_running(|log, _| log.make_room(flush_bytes))?;

        let joined = match event.data() {
            EventData::ExecutorRegistered(executor) => Some(lock(&self.roster).join(&executor.executor_id, event)),
            EventData::ExecutorRemoved(executor) => {
                lock(&self.roster).leave(&executor.executor_id);
                None
            }
            _ => None,
        };
        let roster = Arc::clone(&self.roster);
        self.each_running(|log, line| {
            log.push(line)?;
            log.introduced.extend(joined);
            lock(&roster).prune(&mut log.introduced);
            Ok(())
        })
    }

    /// Makes everything taken over visible to readers.
    pub(super) fn flush(&mut self) -> Result<(), SinkError> {
        self.each(|log, _| log.flush())
    }

    /// Leaves all logs whole and on the disk, with no log open.
    pub(super) fn close(&mut self) -> Result<(), SinkError> {
        let any = !self.open.is_empty();
        let outcome = self.each(|log, _| log.close());
        self.open.clear();
        if any {
            disk::sync_directory(&self.config.directory).map_err(SinkError::transient)?;
        }
        outcome
    }

    fn each_running(
        &mut self,
        mut run: impl FnMut(&mut JobLog, &[u8]) -> Result<(), Trouble>,
    ) -> Result<(), SinkError> {
        self.each(|log, lines| if log.is_running() { run(log, lines) } else { Ok(()) })
    }

    /// Does something to every open log, even when it fails for some. Gives the first failure that may pass.
    fn each(&mut self, mut run: impl FnMut(&mut JobLog, &[u8]) -> Result<(), Trouble>) -> Result<(), SinkError> {
        let mut failed: Option<DiskError> = None;
        let mut given_up = Vec::new();
        for log in self.open.values_mut() {
            match run(log, &self.lines) {
                Ok(()) => {}
                Err(Trouble::Disk(error)) => failed = failed.or(Some(error)),
                Err(Trouble::Job(_) | Trouble::Event(_)) => given_up.push(Arc::clone(&log.job_id)),
            }
        }
        for job_id in given_up {
            self.give_up(&job_id);
        }
        failed.map_or(Ok(()), |error| Err(SinkError::transient(error)))
    }

    /// A log failed for good while no event of its job was at hand. The next one is refused, and says so.
    fn give_up(&mut self, job_id: &str) {
        if let Some(mut log) = self.open.remove(job_id) {
            log.abandon();
            self.refused.add(job_id, Reason::Torn);
        }
    }

    /// What the bus is told, and what is remembered.
    fn error(&mut self, trouble: Trouble, job_id: &str, event: &Event) -> SinkError {
        let reason = match trouble {
            Trouble::Disk(error) => return SinkError::transient(error),
            Trouble::Event(text) => return SinkError::rejected(text),
            Trouble::Job(reason) => reason,
        };
        self.refused.add(job_id, reason);
        if matches!(event.data(), EventData::JobEnd(_)) {
            self.ledger.forget_torn(job_id);
        }
        let paths = LogPaths::new(&self.config.directory, self.config.compression, job_id);
        let text = reason.explain(job_id, paths.as_ref());
        if self.refused.warn(job_id) {
            tracing::warn!("{} event rejected: {text} (said once for this job)", event.kind());
        }
        SinkError::rejected(text)
    }
}

/// Appends an event's line, or leaves `lines` as it was.
fn serialise(event: &Event, lines: &mut Vec<u8>) -> Result<(), Trouble> {
    event
        .write_json_line(lines)
        .map_err(|error| Trouble::Event(format!("{} event can't be written as JSON: {error}", event.kind())))
}

fn lock(roster: &Mutex<Roster>) -> MutexGuard<'_, Roster> {
    // No operation leaves the roster half changed.
    roster.lock().unwrap_or_else(PoisonError::into_inner)
}
