//! The scheduler binary, every flag of it, with a sink of your own among those that `--event-sink` knows.
//!
//! ```text
//! cargo run --example custom_scheduler -- --standalone --event-sink=slow-query
//! ```
//!
//! starts a scheduler on port 50050 with an executor in the same process. Run queries with any Ballista client
//! (`df://localhost:50050`): each that takes longer than half a second is warned of in the scheduler's log, and
//! `SLOW_QUERY_MS=50` in front of the command makes it stricter. `--help` lists the sink beside the built-in ones, and
//! `--event-sink=slow-query,file --event-log-dir=logs` has both.
//!
//! The example `custom_sink` explains a sink like this line by line.

use std::process::ExitCode;
use std::sync::Arc;

use ballista_event_sink::{Event, EventData, EventSink, SinkError, async_trait};
use ballista_event_sinks::{SinkConfigError, SinkName, SinkRegistry};

#[derive(Debug, Clone)]
struct SlowQuery {
    limit_ms: u64,
}

#[async_trait]
impl EventSink for SlowQuery {
    async fn write(&mut self, batch: &[Arc<Event>]) -> Result<(), SinkError> {
        for event in batch {
            let EventData::JobEnd(end) = event.data() else { continue };
            let took_ms = end.completed_at.saturating_sub(end.queued_at);
            if took_ms > self.limit_ms {
                let (job_id, name) = (&end.index.job_id, &end.index.job_name);
                // `tracing` is how the scheduler logs. Standard output would get in the way of the stdout sink.
                tracing::warn!(job_id, name, took_ms, limit_ms = self.limit_ms, "slow query");
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

/// Called when, and only when, `--event-sink` names the sink. The flags are the scheduler's, so a sink of one's own is
/// configured by the environment; an error here is shown as one of usage, before anything has started.
fn slow_query(name: &SinkName) -> Result<Box<dyn EventSink>, SinkConfigError> {
    let limit_ms = match std::env::var("SLOW_QUERY_MS") {
        Ok(text) => text.parse().map_err(|error| {
            SinkConfigError::custom(name.clone(), format!("SLOW_QUERY_MS is {text:?}, not a number: {error}"))
        })?,
        Err(_) => 500,
    };
    Ok(Box::new(SlowQuery { limit_ms }))
}

fn registry() -> Result<SinkRegistry, Box<dyn std::error::Error>> {
    let mut registry = SinkRegistry::builtin();
    let name: SinkName = "slow-query".parse()?;
    registry
        .register(name.clone(), "warns of queries that take longer than SLOW_QUERY_MS", move |_| slow_query(&name))?;
    Ok(registry)
}

fn main() -> ExitCode {
    match registry() {
        Ok(registry) => ballista_event_scheduler::main(registry),
        Err(error) => {
            anstream::eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
