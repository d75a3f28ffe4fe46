//! [`NullSink`]: counts events and forgets them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use ballista_event_sink::event::Event;
use ballista_event_sink::sink::{EventSink, SinkError};

/// Counts events and forgets them.
///
/// Shows what emitting costs by itself, and whether events arrive at all. Clones share the count, so keep one to read
/// it while the bus writes with another.
#[derive(Debug, Clone, Default)]
pub struct NullSink {
    written: Arc<AtomicU64>,
}

impl NullSink {
    /// A sink whose count is 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many events this sink and its clones took over so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl EventSink for NullSink {
    async fn write(&mut self, batch: &[Arc<Event>]) -> Result<(), SinkError> {
        self.written.fetch_add(batch.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{block_on, queued, stage_start};

    #[test]
    fn clones_share_the_count() {
        let watched = NullSink::new();
        let mut sink = watched.clone();
        block_on(sink.write(&[queued("j"), stage_start("j", 1)])).unwrap();
        block_on(sink.flush()).unwrap();
        block_on(sink.close()).unwrap();
        assert_eq!(watched.written(), 2);
    }
}
