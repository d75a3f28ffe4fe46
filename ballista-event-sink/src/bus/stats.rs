//! What is known of a sink from outside.

use std::time::{Duration, SystemTime};

use crate::event::{DroppedEvents, EventKind};

/// Counters of one sink, all taken at the same moment: `emitted = written + dropped + failed + waiting`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SinkStats {
    /// The name it was registered under.
    pub name: String,
    /// How it fares.
    pub state: SinkState,
    /// Events that were emitted for it.
    pub emitted: u64,
    /// Events it took over.
    pub written: u64,
    /// Events it never saw, by kind: the queue was full, it was retired, or the shutdown deadline passed. Kinds with
    /// none are absent.
    pub dropped: DroppedEvents,
    /// Events it was handed and lost: rejected, in hand when it panicked or failed for good, or still in hand when the
    /// shutdown deadline passed.
    pub failed: u64,
    /// Panics caught.
    pub panics: u64,
    /// Events that wait in its queue or are in its hands.
    pub waiting: u64,
    /// Events its queue holds at most, JobEnd not counted.
    pub capacity: usize,
    /// How long the oldest waiting event has waited.
    pub lag: Duration,
    /// The last error it returned.
    pub last_error: Option<LastError>,
}

impl SinkStats {
    /// Events it never saw, all kinds together.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }
}

/// How a sink fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SinkState {
    /// It takes events.
    Healthy,
    /// It returned a transient error, and is tried again.
    Retrying,
    /// It failed for good, or panicked too often. Nothing is handed to it any more.
    Retired,
    /// It was closed by the shutdown.
    Closed,
}

/// An error a sink returned.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LastError {
    /// Its text, with causes.
    pub message: String,
    /// When it was returned.
    pub at: SystemTime,
}

/// Events counted by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct KindCounts([u64; EventKind::ALL.len()]);

impl KindCounts {
    pub(super) fn add(&mut self, kind: EventKind) {
        self.0[kind.index()] += 1;
    }

    /// The kinds that occurred, by name.
    pub(super) fn to_map(self) -> DroppedEvents {
        EventKind::ALL
            .into_iter()
            .zip(self.0)
            .filter(|&(_, count)| count > 0)
            .map(|(kind, count)| (kind.as_str().to_owned(), count))
            .collect()
    }
}
