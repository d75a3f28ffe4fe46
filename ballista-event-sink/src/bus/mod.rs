//! The bus: from the scheduler's threads to the sinks, without ever making the scheduler wait.
//!
//! Each sink has a bounded queue and a worker thread of its own. [`EventBus::emit`] puts an event into every queue and
//! returns; what a sink does with it, however slowly or badly, is nobody else's business.
//!
//! # What can be lost
//!
//! - An event of the timeline that finds its sink's queue full: see [`OverflowPolicy`].
//! - JobEnd is never dropped while its sink lives. It has a lane of its own beside the queue, and still keeps its place
//!   behind everything its job emitted before.
//! - What a sink rejects, what it was holding when it panicked, and what is left when the shutdown deadline passes.
//!
//! Every loss is counted, by sink and kind, so that at any time `emitted = written + dropped + failed + waiting`
//! ([`SinkStats`]); and the JobEnd that a sink receives says how many of its job's events that sink missed.
//!
//! # Shutdown
//!
//! [`EventBusBuilder::build`] returns a [`BusGuard`] beside the bus. Keep it, and end with
//! [`BusGuard::shutdown`], which drains the queues within a deadline and returns what was lost.

mod guard;
mod policy;
mod queue;
mod stats;
mod worker;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

pub use guard::{BusGuard, Hold, ShutdownReport, SinkReport};
pub use policy::{OverflowPolicy, ParsePolicyError};
pub use stats::{LastError, SinkState, SinkStats};

use crate::event::Event;
use crate::sink::EventSink;
use guard::Holds;
use queue::{FlushOutcome, Queue};
use worker::{Pace, Worker};

/// Events one sink's queue holds unless told otherwise. At about 400 bytes an event, 3 MiB for a full queue.
pub const DEFAULT_QUEUE_CAPACITY: usize = 8192;

/// How often a sink is flushed while events come in, unless told otherwise.
pub const DEFAULT_FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// The pause before a sink that returned a transient error is tried again, unless told otherwise. Doubled from try to
/// try.
pub const DEFAULT_FIRST_RETRY: Duration = Duration::from_millis(100);

/// The longest pause between two tries, unless told otherwise: how much later than its cause an outage ends.
pub const DEFAULT_LONGEST_RETRY: Duration = Duration::from_secs(10);

/// Hands events to sinks. Cheap to clone; all clones are the same bus.
#[derive(Clone)]
pub struct EventBus {
    inner: Arc<Inner>,
}

struct Inner {
    sinks: Vec<Arc<Queue>>,
    plan_revisions: bool,
    holds: Arc<Holds>,
}

impl EventBus {
    /// Starts to configure a bus.
    pub fn builder() -> EventBusBuilder {
        EventBusBuilder::default()
    }

    /// A bus with no sinks. Emitting into it does nothing, and [`start_server`](crate::start_server) then runs the
    /// stock scheduler as it is.
    pub fn disabled() -> Self {
        Self { inner: Arc::new(Inner { sinks: Vec::new(), plan_revisions: false, holds: Arc::new(Holds::default()) }) }
    }

    /// Whether anyone listens.
    pub fn is_enabled(&self) -> bool {
        !self.inner.sinks.is_empty()
    }

    /// Whether plan revisions are wanted; see [`EventBusBuilder::plan_revisions`].
    pub fn wants_plan_revisions(&self) -> bool {
        self.inner.plan_revisions
    }

    /// Puts an event into the queue of every sink.
    ///
    /// Never waits on a sink, except under [`OverflowPolicy::Block`], and never fails: what can't be queued is dropped
    /// and counted.
    pub fn emit(&self, event: Event) {
        let Some((last, others)) = self.inner.sinks.split_last() else {
            return;
        };
        let event = Arc::new(event);
        let now = Instant::now();
        for queue in others {
            queue.push(Arc::clone(&event), now);
        }
        last.push(event, now);
    }

    /// The counters of every sink, in the order in which the sinks were registered.
    pub fn stats(&self) -> Vec<SinkStats> {
        self.inner.sinks.iter().map(|queue| queue.stats()).collect()
    }

    /// Waits until every sink has written and flushed all that was emitted before this call, at most until `deadline`
    /// has passed. Returns the names of the sinks that did not.
    ///
    /// # Errors
    ///
    /// The names of the sinks that failed to flush, are retired, or took too long.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime with time enabled.
    pub async fn flush(&self, deadline: Duration) -> Result<(), FlushError> {
        let end = tokio::time::Instant::now() + deadline;
        let replies: Vec<(String, oneshot::Receiver<FlushOutcome>)> =
            self.inner.sinks.iter().map(|queue| (queue.name().to_owned(), queue.request_flush())).collect();
        let mut sinks = Vec::new();
        for (name, reply) in replies {
            match tokio::time::timeout_at(end, reply).await {
                Ok(Ok(FlushOutcome::Flushed)) => {}
                Ok(Ok(FlushOutcome::Failed) | Err(_)) | Err(_) => sinks.push(name),
            }
        }
        if sinks.is_empty() { Ok(()) } else { Err(FlushError { sinks }) }
    }

    /// Announces an event that is still being made, such as a JobEnd whose payload is rendered in the background.
    /// Shutdown waits for it, within its deadline, before it closes the queues.
    pub fn hold(&self) -> Hold {
        Holds::take(&self.inner.holds)
    }
}

impl fmt::Debug for EventBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.inner.sinks.iter().map(|queue| queue.name()).collect();
        f.debug_struct("EventBus").field("sinks", &names).finish_non_exhaustive()
    }
}

/// Some sinks did not flush.
#[derive(Debug, thiserror::Error)]
#[error("event sinks not flushed: {}", sinks.join(", "))]
#[non_exhaustive]
pub struct FlushError {
    /// Their names.
    pub sinks: Vec<String>,
}

/// Why a bus can't be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Two sinks were registered under one name, so their counters could not be told apart.
    #[error("event sink {name:?} is registered twice; give each sink a name of its own")]
    DuplicateSink {
        /// The name.
        name: String,
    },
    /// A queue that holds nothing.
    #[error("event queue capacity is 0; it must be at least 1 (default {DEFAULT_QUEUE_CAPACITY})")]
    ZeroCapacity,
    /// The operating system refused a thread.
    #[error("could not start the worker thread of event sink {name:?}: {source}")]
    Spawn {
        /// The sink.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Configures an [`EventBus`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct EventBusBuilder {
    capacity: usize,
    policy: OverflowPolicy,
    plan_revisions: bool,
    pace: Pace,
    sinks: Vec<(String, Box<dyn EventSink>)>,
}

impl Default for EventBusBuilder {
    fn default() -> Self {
        Self {
            capacity: DEFAULT_QUEUE_CAPACITY,
            policy: OverflowPolicy::default(),
            plan_revisions: false,
            pace: Pace {
                flush_interval: DEFAULT_FLUSH_INTERVAL,
                first_retry: DEFAULT_FIRST_RETRY,
                longest_retry: DEFAULT_LONGEST_RETRY,
            },
            sinks: Vec::new(),
        }
    }
}

impl EventBusBuilder {
    /// Events that each sink's queue holds, JobEnd not counted. At least 1.
    pub fn queue_capacity(mut self, events: usize) -> Self {
        self.capacity = events;
        self
    }

    /// What happens when a queue is full.
    pub fn overflow_policy(mut self, policy: OverflowPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Whether each plan that an adaptive job goes through is emitted, as JobPlanRevision. Off by default: a plan is
    /// then rendered at every replan, while the scheduler waits.
    pub fn plan_revisions(mut self, wanted: bool) -> Self {
        self.plan_revisions = wanted;
        self
    }

    /// How often a sink is flushed while events come in.
    pub fn flush_interval(mut self, interval: Duration) -> Self {
        self.pace.flush_interval = interval;
        self
    }

    /// The pauses between tries of a sink that returned a transient error: `first`, then twice as long each time, up to
    /// `longest`.
    pub fn retry_pauses(mut self, first: Duration, longest: Duration) -> Self {
        self.pace.first_retry = first;
        self.pace.longest_retry = longest.max(first);
        self
    }

    /// Adds a sink under a name of its own, by which its counters and log lines call it.
    pub fn sink(mut self, name: impl Into<String>, sink: impl EventSink + 'static) -> Self {
        self.sinks.push((name.into(), Box::new(sink)));
        self
    }

    /// Starts a worker thread for each sink.
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    pub fn build(self) -> Result<(EventBus, BusGuard), BuildError> {
        if self.capacity == 0 {
            return Err(BuildError::ZeroCapacity);
        }
        let mut names = HashSet::new();
        if let Some((name, _)) = self.sinks.iter().find(|(name, _)| !names.insert(name.as_str())) {
            return Err(BuildError::DuplicateSink { name: name.clone() });
        }
        let mut queues = Vec::with_capacity(self.sinks.len());
        let mut workers = Vec::with_capacity(self.sinks.len());
        for (name, sink) in self.sinks {
            let queue = Arc::new(Queue::new(name, self.capacity, self.policy));
            workers.push(Worker::spawn(Arc::clone(&queue), sink, self.pace)?);
            queues.push(queue);
        }
        let holds = Arc::new(Holds::default());
        let bus = EventBus {
            inner: Arc::new(Inner { sinks: queues, plan_revisions: self.plan_revisions, holds: Arc::clone(&holds) }),
        };
        Ok((bus, BusGuard::new(workers, holds)))
    }
}
