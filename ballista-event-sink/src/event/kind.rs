//! The names of the event kinds.

use std::fmt;

/// The kind of an event: the `ev` field of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EventKind {
    /// See [`JobQueued`](super::JobQueued).
    JobQueued,
    /// See [`JobStart`](super::JobStart).
    JobStart,
    /// See [`StageStart`](super::StageStart).
    StageStart,
    /// See [`TaskEnd`](super::TaskEnd).
    TaskEnd,
    /// See [`StageEnd`](super::StageEnd).
    StageEnd,
    /// See [`JobPlanRevision`](super::JobPlanRevision).
    JobPlanRevision,
    /// See [`JobEnd`](super::JobEnd).
    JobEnd,
    /// See [`ExecutorRegistered`](super::ExecutorRegistered).
    ExecutorRegistered,
    /// See [`ExecutorRemoved`](super::ExecutorRemoved).
    ExecutorRemoved,
}

impl EventKind {
    /// Every kind, in the order of a job's life.
    pub const ALL: [Self; 9] = [
        Self::JobQueued,
        Self::JobStart,
        Self::StageStart,
        Self::TaskEnd,
        Self::StageEnd,
        Self::JobPlanRevision,
        Self::JobEnd,
        Self::ExecutorRegistered,
        Self::ExecutorRemoved,
    ];

    /// The name as written to `ev`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::JobQueued => "JobQueued",
            Self::JobStart => "JobStart",
            Self::StageStart => "StageStart",
            Self::TaskEnd => "TaskEnd",
            Self::StageEnd => "StageEnd",
            Self::JobPlanRevision => "JobPlanRevision",
            Self::JobEnd => "JobEnd",
            Self::ExecutorRegistered => "ExecutorRegistered",
            Self::ExecutorRemoved => "ExecutorRemoved",
        }
    }

    /// The kind of that name, if this version knows it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The place of this kind in [`ALL`](Self::ALL), for tables of counters.
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
