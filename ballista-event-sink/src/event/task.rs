//! Tasks: one record each when they end.

use serde::{Deserialize, Serialize};

/// A task reached a terminal status.
///
/// A task owns a slice of its stage's partitions. A task that is retried has one record for each run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskEnd {
    /// Stage the task belonged to.
    pub stage_id: u32,
    /// Number of the task within its stage, from 0.
    pub task_id: u32,
    /// Executor that ran it.
    pub executor_id: String,
    /// Outcome.
    pub status: TaskStatus,
    /// When the scheduler launched it (ms).
    pub launch_time: u64,
    /// When it began to run (ms, by the executor's clock).
    pub start_exec_time: u64,
    /// When it ended (ms, by the executor's clock).
    pub end_exec_time: u64,
    /// Rows and time.
    pub metrics: TaskEndMetrics,
    /// Attempt of the stage that the task belonged to, from 0. Ours; 0 when absent.
    #[serde(default)]
    pub attempt: u32,
    /// Partitions of the stage's input that the task processed. Ours; empty when absent or no longer known.
    #[serde(default)]
    pub partitions: Vec<u32>,
}

/// Outcome of a task, in the shape of the REST API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TaskStatus {
    /// Not over. Never written to a TaskEnd; the REST API knows it.
    Running,
    /// It processed its partitions.
    Successful,
    /// It failed.
    Failed {
        /// Class of failure: `ExecutionError`, `FetchPartitionError`, `IoError`, `ExecutorLost`, `ResultLost`,
        /// `TaskKilled`, or `Failed` when the executor gave none.
        reason: String,
        /// The executor's message.
        error: String,
    },
}

/// Row counts and compute time of one task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskEndMetrics {
    /// Rows the leaves of the stage's plan produced: what the task read.
    pub input_rows: u64,
    /// Rows the root of the stage's plan produced: what the task wrote.
    pub output_rows: u64,
    /// Compute time, summed over operators and partitions (ns).
    pub elapsed_compute_nanos: u64,
}
