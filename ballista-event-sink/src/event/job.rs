//! A job's life: queued, started, ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::RawJson;

/// The scheduler accepted a job. It is not planned yet, and may fail in planning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobQueued {
    /// Job identifier.
    pub job_id: String,
    /// Name the client gave the job; may be empty.
    pub job_name: String,
    /// When the job entered the queue (ms).
    pub queued_at: u64,
    /// The scheduler that accepted the job, where it is known.
    #[serde(default)]
    pub scheduler_id: Option<String>,
}

/// A job was planned and can run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobStart {
    /// Job identifier.
    pub job_id: String,
    /// Name the client gave the job; may be empty.
    pub job_name: String,
    /// When the job entered the queue (ms).
    pub queued_at: u64,
    /// When planning was done (ms).
    ///
    /// The number that the scheduler hands its metrics collector, and stock's log holds, where the tap also wraps the
    /// collector; otherwise when the planned job reached the job state, some microseconds before.
    pub submitted_at: u64,
    /// The scheduler that planned the job, if it is recorded. Stock logs before 55 lack it.
    #[serde(default)]
    pub scheduler_id: Option<String>,
    /// The logical plan as text; absent for jobs submitted as physical plans.
    pub logical_plan: Option<String>,
    /// The physical plan as submitted, as text.
    pub physical_plan: Option<String>,
    /// Whether the adaptive planner runs the job. Ours; `false` when a stock log is read.
    #[serde(default)]
    pub adaptive: bool,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum JobEndStatus {
    /// It produced its result.
    Succeeded,
    /// It failed, in planning or while running, with this message.
    Failed(String),
    /// A user cancelled it.
    Cancelled,
}

/// The summary by which jobs are listed: the fields of one entry of `GET /api/jobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobIndex {
    /// Job identifier.
    pub job_id: String,
    /// Name the client gave the job; may be empty.
    pub job_name: String,
    /// `Completed`, `Failed` or `Cancelled`.
    pub status: String,
    /// The status with its detail: rows produced, or what failed.
    pub job_status: String,
    /// When the job began to run (ms); 0 when it failed in planning.
    pub start_time: u64,
    /// When it ended (ms).
    pub end_time: u64,
    /// Number of stages.
    pub num_stages: usize,
    /// Number of stages that were successful.
    pub completed_stages: usize,
    /// Successful stages in per cent of all.
    pub percent_complete: u8,
}

/// How many events of a job never reached this sink, by kind. Empty when none are missing.
pub type DroppedEvents = BTreeMap<String, u64>;

/// A job ended. Always the last event of its job.
///
/// Holds what the scheduler's REST API answered about the finished job, so that it can be served again when the
/// scheduler has forgotten it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobEnd {
    /// How it ended.
    pub status: JobEndStatus,
    /// When the job entered the queue (ms); 0 if that was not seen.
    pub queued_at: u64,
    /// When it began to run (ms); 0 when it failed in planning.
    pub started_at: u64,
    /// When it ended (ms).
    pub completed_at: u64,
    /// The summary, so that listing needs none of the payloads.
    pub index: JobIndex,
    /// Body of `GET /api/job/{job_id}`, verbatim.
    pub job: RawJson,
    /// Body of `GET /api/job/{job_id}/stages`, verbatim.
    pub stages: RawJson,
    /// Body of `GET /api/job/{job_id}/config`, verbatim: an object of strings.
    pub config: RawJson,
    /// Body of `GET /api/job/{job_id}/dot`: the graph of stages in DOT.
    pub dot: String,
    /// Events of this job that were dropped in front of the sink this record is written by. Ours; empty when a stock
    /// log is read, which keeps no such count.
    #[serde(default)]
    pub dropped_events: DroppedEvents,
}
