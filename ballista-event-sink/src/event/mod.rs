//! The event model: what a scheduler does, as plain data.
//!
//! An [`Event`] is one thing that happened, with the job it belongs to. It is written as one JSON object a line, in
//! the envelope that stock Ballista 55 writes and reads:
//!
//! ```json
//! {"ev":"StageEnd","version":1,"job_id":"06fz3q","data":{"stage_id":1,"status":"Successful","at":1764565200123,"attempt":0}}
//! ```
//!
//! `ev`, `version` and `data` are stock's; `job_id` is ours, so that a line says by itself whose it is (absent for
//! events of the cluster). Every record that stock writes (JobStart, TaskEnd, JobEnd) keeps stock's fields and their
//! meaning; we only add. Readers skip kinds and fields they don't know, so [`SCHEMA_VERSION`] stays 1.
//!
//! Times are milliseconds since the Unix epoch, by the scheduler's clock unless a field says otherwise.
//!
//! This module knows nothing of Ballista: sinks and readers depend on it alone.

mod executor;
mod job;
mod json;
mod kind;
mod plan;
mod record;
mod stage;
mod task;

use std::sync::Arc;

pub use executor::{ExecutorRegistered, ExecutorRemoved};
pub use job::{DroppedEvents, JobEnd, JobEndStatus, JobIndex, JobQueued, JobStart};
pub use json::RawJson;
pub use kind::EventKind;
pub use plan::{JobPlanRevision, PlanChange};
pub use record::{DecodeError, Record, SCHEMA_VERSION};
pub use stage::{StageEnd, StageStart, StageStatus};
pub use task::{TaskEnd, TaskEndMetrics, TaskStatus};

/// One thing a scheduler did.
///
/// Immutable once emitted; sinks share it behind an [`Arc`].
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    job_id: Option<Arc<str>>,
    data: EventData,
}

/// What happened, by kind.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum EventData {
    /// A job was accepted and is not planned yet.
    JobQueued(JobQueued),
    /// A job was planned and can run.
    JobStart(JobStart),
    /// A stage became Running.
    StageStart(StageStart),
    /// A task reached a terminal status.
    TaskEnd(TaskEnd),
    /// A stage is Running no more.
    StageEnd(StageEnd),
    /// A job's plan as submitted, or as a replan left it. Only on request.
    JobPlanRevision(JobPlanRevision),
    /// A job ended, one way or another. Last of its job.
    JobEnd(Box<JobEnd>),
    /// An executor joined the cluster.
    ExecutorRegistered(ExecutorRegistered),
    /// An executor left the cluster.
    ExecutorRemoved(ExecutorRemoved),
}

impl Event {
    /// An event of the job `job_id`.
    pub fn of_job(job_id: impl Into<Arc<str>>, data: EventData) -> Self {
        Self { job_id: Some(job_id.into()), data }
    }

    /// An event of the cluster, which belongs to no job.
    pub fn of_cluster(data: EventData) -> Self {
        Self { job_id: None, data }
    }

    /// The job this event belongs to; `None` for events of the cluster.
    pub fn job_id(&self) -> Option<&str> {
        self.job_id.as_deref()
    }

    /// The job's id for use as a key, without copying it.
    pub(crate) fn job_key(&self) -> Option<&Arc<str>> {
        self.job_id.as_ref()
    }

    /// What happened.
    pub fn data(&self) -> &EventData {
        &self.data
    }

    /// The kind of event, as written to `ev`.
    pub fn kind(&self) -> EventKind {
        self.data.kind()
    }

    /// Appends the event to `out` as one JSON line, newline included.
    ///
    /// A line contains no other newline, whatever its strings hold: JSON escapes them.
    ///
    /// # Errors
    ///
    /// When serialisation fails, which no event this crate makes does; `out` is then left as it was.
    pub fn write_json_line(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let start = out.len();
        let written = serde_json::to_writer(&mut *out, self);
        match written {
            Ok(()) => {
                out.push(b'\n');
                Ok(())
            }
            Err(e) => {
                out.truncate(start);
                Err(e)
            }
        }
    }

    /// Reads one line that [`write_json_line`](Self::write_json_line), or stock Ballista, wrote.
    ///
    /// A stock line has no `job_id`: the name of its file has. Yields `Ok(None)` for a kind that this version
    /// doesn't know.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] says whether the line is no record at all, is too new, or does not fit its kind.
    pub fn from_json_line(line: &str) -> Result<Option<Self>, DecodeError> {
        Record::parse(line)?.decode()
    }

    /// Sets what the queue in front of one sink dropped of this job. Only a JobEnd carries it.
    pub(crate) fn set_dropped_events(&mut self, dropped: DroppedEvents) {
        if let EventData::JobEnd(end) = &mut self.data {
            end.dropped_events = dropped;
        }
    }
}

impl EventData {
    /// The kind of event, as written to `ev`.
    pub fn kind(&self) -> EventKind {
        match self {
            Self::JobQueued(_) => EventKind::JobQueued,
            Self::JobStart(_) => EventKind::JobStart,
            Self::StageStart(_) => EventKind::StageStart,
            Self::TaskEnd(_) => EventKind::TaskEnd,
            Self::StageEnd(_) => EventKind::StageEnd,
            Self::JobPlanRevision(_) => EventKind::JobPlanRevision,
            Self::JobEnd(_) => EventKind::JobEnd,
            Self::ExecutorRegistered(_) => EventKind::ExecutorRegistered,
            Self::ExecutorRemoved(_) => EventKind::ExecutorRemoved,
        }
    }
}
