//! Events over HTTP, to a receiver that is having a bad day.
//!
//! Run it with `cargo run --example webhook_sink`. The sink is [`ballista_event_examples::webhook`], made to be copied;
//! what stands here is the other end, a receiver that does its part so that nothing is lost or doubled, and fails
//! twice to show that:
//!
//! - The first request it refuses, as an endpoint does that is being restarted.
//! - The second it stores, and then the response gets lost. The sink can't know that, and sends the body again; the
//!   receiver sees by its number that it has it.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use ballista_event_examples::cluster::{self, Cluster, run_query};
use ballista_event_examples::webhook::{BATCH_HEADER, STREAM_HEADER, WebhookSink};
use ballista_event_sink::sink::BoxError;
use ballista_event_sink::{Event, EventBus, EventKind};
use tokio::net::TcpListener;

/// What the receiver knows.
#[derive(Default)]
struct Received {
    requests: usize,
    /// The number of the last body of each stream that was stored. All that it takes to drop what comes twice.
    last_batches: HashMap<String, u64>,
    /// What it is all about.
    events: Vec<Event>,
}

type Shared = Arc<Mutex<Received>>;

/// A body with some events. What is answered decides what happens to them: see the table in the sink's documentation.
async fn receive(State(received): State<Shared>, headers: HeaderMap, body: String) -> StatusCode {
    let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
    received.requests += 1;
    let request = received.requests;
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(stream), Some(batch)) = (header(STREAM_HEADER), header(BATCH_HEADER).and_then(|text| text.parse().ok()))
    else {
        return StatusCode::BAD_REQUEST;
    };
    if request == 1 {
        anstream::println!("request {request}, body {batch}: answered 503, \"just restarting\"");
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    if received.last_batches.get(stream).is_some_and(|last| batch <= *last) {
        anstream::println!("request {request}, body {batch}: known already, answered 200 and dropped");
        return StatusCode::OK;
    }
    // Parse all of it before storing any of it: a body is taken as a whole, or not at all.
    let mut events = Vec::new();
    for line in body.lines() {
        match Event::from_json_line(line) {
            Ok(Some(event)) => events.push(event),
            // Of a kind that this receiver doesn't know.
            Ok(None) => {}
            Err(_) => return StatusCode::BAD_REQUEST,
        }
    }
    let kinds: Vec<_> = events.iter().map(|event| event.kind().as_str()).collect();
    let size = body.len() as f64 / 1000.0;
    anstream::println!("request {request}, body {batch}: {size:.1} kB, {}", summary(&kinds));
    received.events.extend(events);
    received.last_batches.insert(stream.to_owned(), batch);
    if request == 2 {
        anstream::println!("    ... stored, but let us say that the response got lost");
        return StatusCode::GATEWAY_TIMEOUT;
    }
    StatusCode::OK
}

/// `JobQueued, JobStart, 3 TaskEnd`
fn summary(kinds: &[&str]) -> String {
    let runs = kinds.chunk_by(|one, next| one == next);
    let texts = runs.map(|run| if run.len() == 1 { run[0].to_owned() } else { format!("{} {}", run.len(), run[0]) });
    texts.collect::<Vec<_>>().join(", ")
}

fn main() -> ExitCode {
    cluster::run(async {
        let received = Shared::default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/events", listener.local_addr()?);
        let receiver = Router::new().route("/events", post(receive)).with_state(Arc::clone(&received));
        tokio::spawn(async move { axum::serve(listener, receiver).await });

        anstream::println!("posting to {url}\n");
        let sink = WebhookSink::new(&url)?.with_timeout(Duration::from_secs(2));
        let (bus, guard) = EventBus::builder().sink("webhook", sink).build()?;
        let cluster = Cluster::start(bus).await?;
        let tables = ballista_event_tpch::generate(&cluster::data_directory(), 0.01)?;
        let client = cluster.client(&tables).await?;
        for query in ballista_event_tpch::QUERIES.iter().filter(|query| matches!(query.name, "q1" | "q3")) {
            run_query(&client, query.name, query.sql).await?;
        }

        let report = guard.shutdown(Duration::from_secs(10)).await;
        let received = received.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = received.events.iter().filter(|event| event.kind() == EventKind::JobEnd).count();
        anstream::println!("\n{report}\nthe receiver has {} events of {jobs} finished jobs", received.events.len());
        let complete =
            report.is_clean() && report.sinks.iter().all(|sink| sink.stats.written == received.events.len() as u64);
        Ok::<_, BoxError>(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}
