//! A sink of your own, from nothing to an alert: jobs that take too long.
//!
//! Run it with `cargo run --example custom_sink`. It starts a small cluster in this process, runs two queries, and
//! complains about the one that is slow. `-- --limit-ms 50` makes it stricter.
//!
//! Read it from top to bottom. The sink comes first, since it is all you need to write; then comes how it is put into
//! a scheduler.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ballista_event_examples::cluster::{self, Cluster, run_query};
use ballista_event_sink::sink::BoxError;
use ballista_event_sink::{Event, EventBus, EventData, EventSink, SinkError, async_trait};
use clap::Parser;

// # The sink
//
// A sink is a value that takes events. It is cloned before it is used (the one you register stays a prototype, from
// which the bus makes a new one should yours ever panic), and it is printed when something is wrong with it: hence the
// two derives.
#[derive(Debug, Clone)]
struct SlowJobs {
    limit: Duration,
}

// Three methods, and nothing else.
#[async_trait]
impl EventSink for SlowJobs {
    // Events come in batches, in the order in which things happened. A sink has a thread of its own, so it may block
    // or wait here as long as it likes: no job and no other sink is held up.
    async fn write(&mut self, batch: &[Arc<Event>]) -> Result<(), SinkError> {
        for event in batch {
            // Filtering is up to the sink. This one cares for the end of jobs, which is the one event that is never
            // dropped, however far behind a sink may be. An alert that could be missed would be no good.
            let EventData::JobEnd(end) = event.data() else { continue };

            // From the moment the job was accepted, so that waiting for a free executor counts too. All times are
            // milliseconds since 1970, by the scheduler's clock.
            let took = Duration::from_millis(end.completed_at.saturating_sub(end.queued_at));
            if took > self.limit {
                // Here yours would page someone. Had that failed, it would return `SinkError::transient(..)`, and the
                // bus would hand over the same events again, a little later. See the example `webhook_sink`.
                let (name, id) = (&end.index.job_name, &end.index.job_id);
                anstream::println!("ALERT  {name} (job {id}) took {took:?}, the limit is {:?}", self.limit);
            } else {
                anstream::println!("fine   {} took {took:?}", end.index.job_name);
            }
        }
        Ok(())
    }

    // Called about once a second while events come in. A sink that buffers writes its buffer out here; this one has
    // none.
    async fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    // Called once, at the end: the last chance to write something, and to release what the sink holds.
    async fn close(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

// # Putting it to work

/// Warns of queries that take longer than a limit.
#[derive(Debug, Parser)]
#[command(name = "custom_sink", version)]
struct Args {
    /// How long a job may take (milliseconds)
    #[arg(long, default_value_t = 500, value_name = "MS")]
    limit_ms: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    cluster::run(async move {
        let sink = SlowJobs { limit: Duration::from_millis(args.limit_ms) };

        // The name is how the bus calls the sink in the scheduler's log. Others can be added beside it, and each gets
        // all events.
        let (bus, guard) = EventBus::builder().sink("slow-jobs", sink).build()?;

        // `Cluster::start` is what an embedder of the scheduler does; the bus is the one thing that is new.
        let cluster = Cluster::start(bus).await?;

        let tables = ballista_event_tpch::generate(&cluster::data_directory(), 0.01)?;
        let client = cluster.client(&tables).await?;
        run_query(&client, "count the nations", "select count(*) from nation where n_regionkey = 1").await?;
        run_query(&client, "phone numbers alike", COMPARE).await?;

        // Events are written behind the jobs' backs, so there may be some left to write. A sink that hangs has until
        // the deadline, and the report says what was lost.
        let report = guard.shutdown(Duration::from_secs(10)).await;
        anstream::println!("\n{report}");
        Ok::<_, BoxError>(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// Every customer with every other: a million pairs, and no hash table helps.
const COMPARE: &str = "select count(*) from customer a join customer b \
    on a.c_custkey < b.c_custkey and levenshtein(a.c_phone, b.c_phone) < 4";
