//! [`EventSink`]: where events go.

use std::fmt::{self, Debug};
use std::sync::Arc;

use async_trait::async_trait;
use dyn_clone::DynClone;

use crate::event::Event;

/// Takes batches of events and puts them somewhere: files, a terminal, a web service.
///
/// # Who implements
///
/// Anyone. A sink is configured once and registered with [`EventBusBuilder::sink`](crate::bus::EventBusBuilder::sink);
/// the `ballista-event-sinks` crate has a file, a stdout and a null sink, and a registry that picks sinks by name.
/// Authors run the functions of the `conformance` module (a feature of this crate) on theirs.
///
/// # Who calls
///
/// The bus, from one worker thread that belongs to this sink alone. Calls never overlap: [`write`](Self::write), any
/// number of times, with [`flush`](Self::flush) in between, then [`close`](Self::close) once, after which nothing is
/// called. The thread runs a current-thread Tokio runtime with I/O and time enabled, so a sink may use Tokio freely;
/// tasks it spawns make progress only while a call is pending.
///
/// # What may block
///
/// Everything. The thread is the sink's own, so blocking I/O is fine and delays no other sink, no job and not the
/// scheduler. While a call blocks, events wait in the sink's queue; when that is full, the
/// [`OverflowPolicy`](crate::bus::OverflowPolicy) decides which are dropped, and they are counted.
///
/// # In what order
///
/// Events arrive in the order in which they were emitted, so in order within a job, JobEnd last. Jobs interleave, and
/// a batch may hold events of many. Filtering is up to the sink. No event is handed over twice, unless
/// the sink asks for it with [`SinkError::transient`].
///
/// # What clones share
///
/// The registered sink is a prototype. The worker writes with a clone of it, and with a fresh clone after a panic. A
/// clone shares configuration and, behind an [`Arc`], whatever the author wants to observe from outside (counters, a
/// client pool); it must not share what has a place in a stream, such as an open file or a compressor. Open such things
/// in the first `write`, not in the constructor: the prototype never writes.
///
/// # What the bus does *not* do
///
/// It does not flush after each batch: a sink that buffers must write out in `flush` and `close`. It does not time
/// calls out: only the shutdown deadline bounds a call that hangs.
///
/// ```
/// use std::sync::Arc;
/// use ballista_event_sink::{async_trait, event::Event, sink::{EventSink, SinkError}};
///
/// #[derive(Debug, Clone)]
/// struct Forget;
///
/// #[async_trait]
/// impl EventSink for Forget {
///     async fn write(&mut self, _: &[Arc<Event>]) -> Result<(), SinkError> { Ok(()) }
///     async fn flush(&mut self) -> Result<(), SinkError> { Ok(()) }
///     async fn close(&mut self) -> Result<(), SinkError> { Ok(()) }
/// }
/// ```
#[async_trait]
pub trait EventSink: DynClone + Debug + Send + Sync {
    /// Takes over a batch, which is never empty.
    ///
    /// `Ok` means that every event of the batch is the sink's business from now on: written, or buffered for the next
    /// [`flush`](Self::flush).
    ///
    /// # For implementors
    ///
    /// Return what [`SinkError`] describes, and how many events at the front of the batch were taken over before the
    /// error: those are never handed over again. A panic costs the whole batch, and is counted; after three in a row
    /// the sink is retired.
    ///
    /// # Errors
    ///
    /// See [`SinkError`].
    async fn write(&mut self, batch: &[Arc<Event>]) -> Result<(), SinkError>;

    /// Makes everything taken over visible to a reader of the destination.
    ///
    /// Called about once a second while events come in, before `close`, and whenever someone asks the bus to flush.
    ///
    /// # Errors
    ///
    /// A transient error is logged and the next flush tries again; a fatal one retires the sink.
    async fn flush(&mut self) -> Result<(), SinkError>;

    /// Ends the sink: flushes, and releases what it holds. What belongs to jobs that are still running stays readable.
    ///
    /// # Errors
    ///
    /// An error is logged and reported by the shutdown; nothing is tried again.
    async fn close(&mut self) -> Result<(), SinkError>;
}

dyn_clone::clone_trait_object!(EventSink);

#[async_trait]
impl EventSink for Box<dyn EventSink> {
    async fn write(&mut self, batch: &[Arc<Event>]) -> Result<(), SinkError> {
        (**self).write(batch).await
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        (**self).flush().await
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        (**self).close().await
    }
}

/// The cause of a [`SinkError`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a sink could not do what it was asked.
///
/// The variant tells the bus what to do next; `written` counts the events at the front of the batch that the sink did
/// take over. Errors of `flush` and `close` have `written` 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// It may work later: disk full, connection refused. The bus waits, longer each time, and hands over the rest of
    /// the batch again, for as long as it takes; meanwhile the queue fills.
    #[error("{source}")]
    Transient {
        /// Events taken over before the error.
        written: usize,
        /// What went wrong.
        source: BoxError,
    },
    /// The event after the first `written` can never be written: it is too large, its log is finished. It is counted
    /// as failed, and the bus goes on with the one after it.
    #[error("{source}")]
    Rejected {
        /// Events taken over before the one that was rejected.
        written: usize,
        /// What is wrong with it.
        source: BoxError,
    },
    /// The sink is done for: the pipe is closed, the credentials are wrong. It is retired, and everything for it is
    /// counted as lost.
    #[error("{source}")]
    Fatal {
        /// Events taken over before the error.
        written: usize,
        /// What went wrong.
        source: BoxError,
    },
}

impl SinkError {
    /// An error that may pass, before any event of the batch was taken over. See [`after`](Self::after).
    pub fn transient(source: impl Into<BoxError>) -> Self {
        Self::Transient { written: 0, source: source.into() }
    }

    /// The first event of the batch can never be written. See [`after`](Self::after).
    pub fn rejected(source: impl Into<BoxError>) -> Self {
        Self::Rejected { written: 0, source: source.into() }
    }

    /// An error that ends the sink, before any event of the batch was taken over. See [`after`](Self::after).
    pub fn fatal(source: impl Into<BoxError>) -> Self {
        Self::Fatal { written: 0, source: source.into() }
    }

    /// The same error, once `count` events at the front of the batch had been taken over.
    #[must_use]
    pub fn after(mut self, count: usize) -> Self {
        match &mut self {
            Self::Transient { written, .. } | Self::Rejected { written, .. } | Self::Fatal { written, .. } => {
                *written = count;
            }
        }
        self
    }

    /// Events at the front of the batch that the sink took over before the error.
    pub fn written(&self) -> usize {
        match self {
            Self::Transient { written, .. } | Self::Rejected { written, .. } | Self::Fatal { written, .. } => *written,
        }
    }
}

/// An error's text with all of its causes, for one line of a log.
pub(crate) struct Causes<'a>(pub(crate) &'a (dyn std::error::Error + 'a));

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // A transparent wrapper repeats its source.
            if text != said {
                write!(f, ": {text}")?;
            }
            said = text;
            cause = error.source();
        }
        Ok(())
    }
}
