//! Executors: who joined and who left. These events belong to no job.

use serde::{Deserialize, Serialize};

/// An executor joined the cluster, or came back after it was removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExecutorRegistered {
    /// Executor identifier.
    pub executor_id: String,
    /// Host name or address it announced.
    pub host: String,
    /// Port of its Arrow Flight service, from which results are fetched.
    pub port: u16,
    /// Port of its gRPC service; meaningless under pull scheduling.
    pub grpc_port: u16,
    /// Virtual cores it offers: how many partitions it works on at a time.
    pub vcores: u32,
    /// When it joined (ms).
    pub at: u64,
    /// The scheduler it joined, where it is known.
    #[serde(default)]
    pub scheduler_id: Option<String>,
    /// Operating system and its version.
    #[serde(default)]
    pub os: Option<String>,
    /// Physical cores of its machine; 0 when it did not say.
    #[serde(default)]
    pub physical_cores: u32,
}

/// An executor left the cluster: it stopped, its heartbeat timed out, or a launch on it failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExecutorRemoved {
    /// Executor identifier.
    pub executor_id: String,
    /// When the scheduler removed it (ms).
    pub at: u64,
}
