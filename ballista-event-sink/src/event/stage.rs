//! Stages: when each attempt began and how it ended.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A stage became Running: its tasks can be handed to executors.
///
/// A stage that is rolled back and runs again starts again, usually with a higher attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StageStart {
    /// Stage identifier within the job.
    pub stage_id: u32,
    /// Number of partitions the stage reads, and so the most tasks it can have at a time.
    pub partitions: u32,
    /// When the stage became Running (ms). Ours; 0 when absent.
    #[serde(default)]
    pub at: u64,
    /// Attempt of the stage, from 0. Ours; 0 when absent.
    #[serde(default)]
    pub attempt: u32,
    /// The plan that this attempt executes, as text. Ours.
    #[serde(default)]
    pub plan: Option<String>,
}

/// An attempt of a stage is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StageEnd {
    /// Stage identifier within the job.
    pub stage_id: u32,
    /// How the attempt ended.
    pub status: StageStatus,
    /// When it ended (ms). Ours; 0 when absent.
    #[serde(default)]
    pub at: u64,
    /// Attempt of the stage, from 0. Ours; 0 when absent.
    #[serde(default)]
    pub attempt: u32,
}

/// How an attempt of a stage ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum StageStatus {
    /// All of its partitions were processed.
    Successful,
    /// It failed, or its job failed or was cancelled while it ran.
    Failed,
    /// It lost its input (an executor died, a shuffle file could not be fetched) and will run again.
    RolledBack,
    /// A status this version doesn't know, as it was written.
    Other(String),
}

impl StageStatus {
    /// The status as written.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Successful => "Successful",
            Self::Failed => "Failed",
            Self::RolledBack => "RolledBack",
            Self::Other(other) => other,
        }
    }
}

impl fmt::Display for StageStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for StageStatus {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.to_owned().into())
    }
}

impl From<String> for StageStatus {
    fn from(text: String) -> Self {
        match text.as_str() {
            "Successful" => Self::Successful,
            "Failed" => Self::Failed,
            "RolledBack" => Self::RolledBack,
            _ => Self::Other(text),
        }
    }
}

impl From<StageStatus> for String {
    fn from(status: StageStatus) -> Self {
        match status {
            StageStatus::Other(other) => other,
            known => known.as_str().to_owned(),
        }
    }
}
