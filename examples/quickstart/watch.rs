//! A sink on a channel: how a program follows its own jobs.

use std::sync::Arc;

use ballista_event_sink::sink::BoxError;
use ballista_event_sink::{Event, EventKind, EventSink, SinkError, async_trait};
use tokio::sync::mpsc;

/// Events that wait in the channel. When it is full the sink waits, on the thread that is its own, and its queue in
/// the bus fills; the scheduler goes on in any case.
const CAPACITY: usize = 1024;

/// Sends every event into a channel.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    events: mpsc::Sender<Arc<Event>>,
}

impl Watch {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Arc<Event>>) {
        let (events, receiver) = mpsc::channel(CAPACITY);
        (Self { events }, receiver)
    }
}

#[async_trait]
impl EventSink for Watch {
    async fn write(&mut self, batch: &[Arc<Event>]) -> Result<(), SinkError> {
        for event in batch {
            if self.events.send(Arc::clone(event)).await.is_err() {
                // The receiver is gone: nobody watches any more, so nothing is missed.
                break;
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Waits for the first executor.
pub(crate) async fn executor_joined(events: &mut mpsc::Receiver<Arc<Event>>) -> Result<(), BoxError> {
    while let Some(event) = events.recv().await {
        if event.kind() == EventKind::ExecutorRegistered {
            return Ok(());
        }
    }
    Err("the event bus has stopped".into())
}
