//! The thread that owns a sink: takes batches from its queue, retries, flushes, and survives its panics.

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::sync::oneshot;

use super::BuildError;
use super::queue::{FlushOutcome, Queue, Work};
use crate::event::Event;
use crate::sink::{Causes, EventSink, SinkError};

/// Panics in a row after which a sink is retired: it is broken, not unlucky.
const MAX_PANICS: u32 = 3;

/// How a sink was left.
#[derive(Debug)]
pub(super) enum Ending {
    Closed,
    Retired,
    CloseFailed(String),
}

/// When a worker does what nobody asks it for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) flush_interval: Duration,
    /// The pause before the first try after a transient error, doubled from try to try up to the longest.
    pub(super) first_retry: Duration,
    pub(super) longest_retry: Duration,
}

/// The outside of a worker thread.
pub(super) struct Worker {
    pub(super) queue: Arc<Queue>,
    pub(super) ending: oneshot::Receiver<Ending>,
    /// Disconnected when the thread is done, for waiting without a runtime.
    pub(super) done: mpsc::Receiver<()>,
}

impl Worker {
    pub(super) fn spawn(queue: Arc<Queue>, prototype: Box<dyn EventSink>, pace: Pace) -> Result<Self, BuildError> {
        let failed = |source| BuildError::Spawn { name: queue.name().to_owned(), source };
        // Made here, so that a failure to make it is an error of `build`.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (ended, ending) = oneshot::channel();
        let (alive, done) = mpsc::channel();
        let inside = SinkLoop {
            queue: Arc::clone(&queue),
            sink: prototype.clone(),
            prototype,
            pace,
            last_flush: Instant::now(),
            dirty: false,
            panics_in_a_row: 0,
        };
        std::thread::Builder::new()
            .name(format!("event-sink-{}", queue.name()))
            .spawn(move || {
                let ending = runtime.block_on(inside.run());
                // Whoever waits may be gone.
                let _ = ended.send(ending);
                drop(alive);
            })
            .map_err(failed)?;
        Ok(Self { queue, ending, done })
    }
}

struct SinkLoop {
    queue: Arc<Queue>,
    prototype: Box<dyn EventSink>,
    sink: Box<dyn EventSink>,
    pace: Pace,
    last_flush: Instant,
    /// Something was written since the last flush.
    dirty: bool,
    panics_in_a_row: u32,
}

/// What came of a call into the sink.
enum Call {
    Ok,
    Err(SinkError),
    Panicked,
}

impl SinkLoop {
    async fn run(mut self) -> Ending {
        loop {
            let wake_at = self.dirty.then(|| self.last_flush + self.pace.flush_interval);
            let step = match self.queue.next(wake_at).await {
                Work::Write(batch) => match self.write(&batch).await {
                    ControlFlow::Continue(()) if self.flush_is_due() => self.flush().await.1,
                    step => step,
                },
                Work::Idle => self.flush().await.1,
                Work::Flush(reply) => {
                    let (outcome, step) = self.flush().await;
                    // Whoever asked may have stopped waiting.
                    let _ = reply.send(outcome);
                    step
                }
                Work::Done => return self.close().await,
                Work::Abandoned => ControlFlow::Break(()),
            };
            if step.is_break() {
                self.queue.retire();
                return Ending::Retired;
            }
        }
    }

    async fn write(&mut self, batch: &[Arc<Event>]) -> ControlFlow<()> {
        let mut rest = batch;
        let mut pause = self.pace.first_retry;
        while !rest.is_empty() {
            let call = guard(self.sink.write(rest)).await;
            if !matches!(call, Call::Panicked) {
                self.panics_in_a_row = 0;
            }
            let error = match call {
                Call::Ok => {
                    self.dirty = true;
                    self.queue.record_written(rest.len());
                    return ControlFlow::Continue(());
                }
                Call::Panicked => {
                    self.queue.record_failed(rest);
                    return self.replace_after_panic();
                }
                Call::Err(error) => error,
            };
            // A sink that claims more than it was given is taken at its word, within reason.
            let written = error.written().min(rest.len());
            if written > 0 {
                self.dirty = true;
                self.queue.record_written(written);
                pause = self.pace.first_retry;
                rest = &rest[written..];
            }
            match error {
                SinkError::Transient { .. } => {
                    self.note(&error, true);
                    self.queue.pause(pause).await;
                    pause = (pause * 2).min(self.pace.longest_retry);
                }
                SinkError::Rejected { .. } => {
                    self.note(&error, false);
                    if let Some((rejected, others)) = rest.split_first() {
                        self.queue.record_failed(std::slice::from_ref(rejected));
                        rest = others;
                    }
                }
                SinkError::Fatal { .. } => {
                    self.note(&error, false);
                    tracing::error!(
                        sink = self.queue.name(),
                        error = %Causes(&error),
                        "event sink failed for good and is retired; jobs are not affected"
                    );
                    return ControlFlow::Break(());
                }
            }
            if self.queue.is_given_up() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Records an error; warns of the first of a row of transient ones.
    fn note(&self, error: &SinkError, retrying: bool) {
        let message = Causes(error).to_string();
        let first = self.queue.record_error(message.clone(), retrying);
        if retrying && first {
            tracing::warn!(
                sink = self.queue.name(),
                error = message,
                "event sink can't write; it is tried again until it can, jobs are not affected"
            );
        }
    }

    fn flush_is_due(&self) -> bool {
        self.last_flush.elapsed() >= self.pace.flush_interval
    }

    async fn flush(&mut self) -> (FlushOutcome, ControlFlow<()>) {
        self.last_flush = Instant::now();
        match guard(self.sink.flush()).await {
            Call::Ok => {
                self.dirty = false;
                (FlushOutcome::Flushed, ControlFlow::Continue(()))
            }
            Call::Err(error @ SinkError::Fatal { .. }) => {
                self.note(&error, false);
                tracing::error!(
                    sink = self.queue.name(),
                    error = %Causes(&error),
                    "event sink can't flush and is retired; jobs are not affected"
                );
                (FlushOutcome::Failed, ControlFlow::Break(()))
            }
            Call::Err(error) => {
                // Still dirty: tried again when it is next due.
                self.note(&error, true);
                (FlushOutcome::Failed, ControlFlow::Continue(()))
            }
            Call::Panicked => {
                self.dirty = false;
                (FlushOutcome::Failed, self.replace_after_panic())
            }
        }
    }

    async fn close(&mut self) -> Ending {
        let ending = match guard(self.sink.close()).await {
            Call::Ok => Ending::Closed,
            Call::Err(error) => {
                let message = Causes(&error).to_string();
                tracing::error!(sink = self.queue.name(), error = message, "event sink did not close cleanly");
                self.queue.record_error(message.clone(), false);
                Ending::CloseFailed(message)
            }
            Call::Panicked => {
                self.queue.record_panic();
                Ending::CloseFailed("panicked in close".to_owned())
            }
        };
        self.queue.close();
        ending
    }

    /// A sink that panicked may be half way through anything: go on with a fresh clone.
    fn replace_after_panic(&mut self) -> ControlFlow<()> {
        self.queue.record_panic();
        self.panics_in_a_row += 1;
        let clone = std::panic::catch_unwind(AssertUnwindSafe(|| self.prototype.clone()));
        match clone {
            Ok(sink) if self.panics_in_a_row < MAX_PANICS => {
                tracing::error!(
                    sink = self.queue.name(),
                    "event sink panicked; its batch is lost, it goes on with a fresh clone"
                );
                let broken = std::mem::replace(&mut self.sink, sink);
                drop_quietly(broken);
                ControlFlow::Continue(())
            }
            _ => {
                tracing::error!(
                    sink = self.queue.name(),
                    panics = self.panics_in_a_row,
                    "event sink panicked and is retired; jobs are not affected"
                );
                ControlFlow::Break(())
            }
        }
    }
}

/// Runs a call into a sink and catches its panic.
async fn guard(call: impl Future<Output = Result<(), SinkError>>) -> Call {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(Ok(())) => Call::Ok,
        Ok(Err(error)) => Call::Err(error),
        Err(panic) => {
            tracing::debug!(panic = panic_text(panic.as_ref()), "caught a panic of an event sink");
            Call::Panicked
        }
    }
}

/// What panicked once may panic again when it is dropped.
fn drop_quietly(broken: Box<dyn EventSink>) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| drop(broken))).is_err() {
        tracing::debug!("an event sink panicked while it was dropped");
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
