//! The end of a bus: drained within a deadline, and told what was lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::stats::SinkStats;
use super::worker::{Ending, Worker};

/// How long a guard that is merely dropped waits for the sinks. Shutting down in order takes a deadline of the
/// caller's choice; a drop happens in a panic or an early return, where a hung sink must not hang the process.
const DROP_DEADLINE: Duration = Duration::from_secs(1);

/// Keeps the sinks' worker threads; ends them with [`shutdown`](Self::shutdown).
///
/// Bind it to a name. `let (bus, _) = builder.build()?` drops the guard at once, and with it the bus: what is emitted
/// after that is dropped. A guard that is dropped without `shutdown` waits up to one second for the sinks, and can
/// tell nobody what was lost.
#[derive(Debug)]
#[must_use = "dropping the guard ends the bus; bind it to a name and call `shutdown`"]
pub struct BusGuard {
    workers: Vec<Worker>,
    holds: Arc<Holds>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.queue.name())
    }
}

impl BusGuard {
    pub(super) fn new(workers: Vec<Worker>, holds: Arc<Holds>) -> Self {
        Self { workers, holds }
    }

    /// Waits for events that are still being made, drains the queues, and closes the sinks, all within `deadline`.
    ///
    /// What is emitted once the queues drain is dropped and counted. A sink that hangs past the deadline is given up:
    /// its thread is left behind, what it had not written is lost, and the report says so.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime with time enabled.
    pub async fn shutdown(mut self, deadline: Duration) -> ShutdownReport {
        let end = tokio::time::Instant::now() + deadline;
        let unfinished = match tokio::time::timeout_at(end, self.holds.wait()).await {
            Ok(()) => 0,
            Err(_) => self.holds.count(),
        };
        for worker in &self.workers {
            worker.queue.drain();
        }
        let mut sinks = Vec::with_capacity(self.workers.len());
        for worker in std::mem::take(&mut self.workers) {
            let problem = match tokio::time::timeout_at(end, worker.ending).await {
                Ok(Ok(Ending::Closed)) => None,
                Ok(Ok(Ending::CloseFailed(message))) => Some(format!("did not close: {message}")),
                Ok(Ok(Ending::Retired)) => Some("had been retired".to_owned()),
                // Its thread ended without a word, which takes a panic outside the sink's own calls.
                Ok(Err(_)) => Some("its worker thread died".to_owned()),
                Err(_) => Some(format!("was still busy after {deadline:?} and was given up")),
            };
            worker.queue.close();
            sinks.push(SinkReport { stats: worker.queue.stats(), problem });
        }
        ShutdownReport { sinks, unfinished }
    }
}

impl Drop for BusGuard {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.queue.drain();
        }
        let end = Instant::now() + DROP_DEADLINE;
        for worker in self.workers.drain(..) {
            let left = end.saturating_duration_since(Instant::now());
            if let Err(RecvTimeoutError::Timeout) = worker.done.recv_timeout(left) {
                tracing::error!(
                    sink = worker.queue.name(),
                    "event bus dropped while the sink was busy; its waiting events are lost"
                );
            }
            worker.queue.close();
        }
    }
}

/// What became of every sink at shutdown.
#[derive(Debug)]
#[must_use = "says what was lost"]
#[non_exhaustive]
pub struct ShutdownReport {
    /// One for each sink, in the order in which they were registered.
    pub sinks: Vec<SinkReport>,
    /// Events that were still being made when the deadline passed: jobs that ended without their JobEnd.
    pub unfinished: usize,
}

/// What became of one sink.
#[derive(Debug)]
#[non_exhaustive]
pub struct SinkReport {
    /// Its final counters: `emitted = written + dropped + failed`.
    pub stats: SinkStats,
    /// What went wrong, if anything did.
    pub problem: Option<String>,
}

impl ShutdownReport {
    /// Whether every event reached every sink.
    pub fn is_clean(&self) -> bool {
        self.unfinished == 0 && self.sinks.iter().all(SinkReport::is_clean)
    }
}

impl SinkReport {
    /// Whether every event reached this sink.
    pub fn is_clean(&self) -> bool {
        self.problem.is_none() && self.stats.emitted == self.stats.written
    }
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, SinkReport { stats, problem }) in self.sinks.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "event sink {}: {} of {} events written", stats.name, stats.written, stats.emitted)?;
            if stats.dropped_total() > 0 {
                write!(f, ", {} dropped", stats.dropped_total())?;
            }
            if stats.failed > 0 {
                write!(f, ", {} failed", stats.failed)?;
            }
            if let Some(problem) = problem {
                write!(f, ", {problem}")?;
            }
        }
        if self.unfinished > 0 {
            write!(f, "; {} jobs ended without their JobEnd", self.unfinished)?;
        }
        Ok(())
    }
}

/// Events that are being made.
#[derive(Debug, Default)]
pub(super) struct Holds {
    count: AtomicUsize,
    released: Notify,
}

impl Holds {
    pub(super) fn take(holds: &Arc<Self>) -> Hold {
        holds.count.fetch_add(1, Ordering::AcqRel);
        Hold { holds: Arc::clone(holds) }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    async fn wait(&self) {
        while self.count() > 0 {
            let released = self.released.notified();
            // Registered before the count is read again, so that the last release can't slip between.
            tokio::pin!(released);
            released.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            released.await;
        }
    }
}

/// Holds the shutdown up while an event is being made; see [`EventBus::hold`](super::EventBus::hold).
#[derive(Debug)]
#[must_use = "dropping it says that the event was emitted"]
pub struct Hold {
    holds: Arc<Holds>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.holds.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.holds.released.notify_waiters();
        }
    }
}
