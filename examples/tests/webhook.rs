//! The webhook sink against a real endpoint, which answers as it is told.
#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use ballista_event_examples::webhook::{BATCH_HEADER, STREAM_HEADER, WebhookSink};
use ballista_event_sink::bus::SinkState;
use ballista_event_sink::conformance::{self, sample_job};
use ballista_event_sink::{Event, EventBus, EventSink, SinkError};
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// A test that waits longer than this has failed; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the endpoint does with a request.
#[derive(Clone, Copy)]
enum Answer {
    /// Stores it, unless it has it, and answers 200.
    Store,
    /// Answers this, and stores nothing.
    Status(u16),
    /// Stores it, unless it has it, and answers 502: the response got lost.
    StoreAndFail,
    /// Never answers.
    Hang,
    /// Refuses bodies that hold this text.
    RefuseWith(&'static str),
}

struct Request {
    stream: String,
    batch: u64,
    body: String,
}

#[derive(Default)]
struct Endpoint {
    url: String,
    /// One for each of the next requests; after them, all are answered with `then`.
    answers: Mutex<VecDeque<Answer>>,
    then: Option<Answer>,
    requests: Mutex<Vec<Request>>,
    stored: Mutex<Vec<String>>,
    last_batches: Mutex<HashMap<String, u64>>,
    asked: Notify,
}

impl Endpoint {
    async fn start(answers: impl IntoIterator<Item = Answer>, then: Answer) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Arc::new(Self {
            url: format!("http://{}/events", listener.local_addr().unwrap()),
            answers: Mutex::new(answers.into_iter().collect()),
            then: Some(then),
            ..Self::default()
        });
        let routes = Router::new()
            .route("/events", post(answer))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&endpoint));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        endpoint
    }

    fn sink(&self) -> WebhookSink {
        WebhookSink::new(&self.url).unwrap()
    }

    fn store(&self, stream: &str, batch: u64, body: &str) {
        let mut last_batches = self.last_batches.lock().unwrap();
        if last_batches.get(stream).is_none_or(|last| batch > *last) {
            last_batches.insert(stream.to_owned(), batch);
            self.stored.lock().unwrap().extend(body.lines().map(str::to_owned));
        }
    }

    fn stored(&self) -> Vec<String> {
        self.stored.lock().unwrap().clone()
    }
}

async fn answer(State(endpoint): State<Arc<Endpoint>>, headers: HeaderMap, body: String) -> (StatusCode, &'static str) {
    let header = |name| headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/x-ndjson");
    let (stream, batch) = (header(STREAM_HEADER), header(BATCH_HEADER).parse().unwrap());
    let planned = endpoint.answers.lock().unwrap().pop_front();
    let planned = planned.or(endpoint.then).unwrap();
    endpoint.requests.lock().unwrap().push(Request { stream: stream.clone(), batch, body: body.clone() });
    endpoint.asked.notify_one();
    match planned {
        Answer::Store => endpoint.store(&stream, batch, &body),
        Answer::Status(status) => return (StatusCode::from_u16(status).unwrap(), "because\nof things"),
        Answer::StoreAndFail => {
            endpoint.store(&stream, batch, &body);
            return (StatusCode::BAD_GATEWAY, "");
        }
        Answer::Hang => std::future::pending().await,
        Answer::RefuseWith(text) if body.contains(text) => return (StatusCode::UNPROCESSABLE_ENTITY, "not that"),
        Answer::RefuseWith(_) => endpoint.store(&stream, batch, &body),
    }
    (StatusCode::OK, "")
}

fn lines(events: &[Arc<Event>]) -> Vec<String> {
    events.iter().map(|event| line(event)).collect()
}

fn line(event: &Event) -> String {
    let mut line = Vec::new();
    event.write_json_line(&mut line).unwrap();
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

/// Emits events into a bus with this sink alone, and shuts it down.
async fn deliver(sink: WebhookSink, events: &[Arc<Event>]) -> ballista_event_sink::bus::ShutdownReport {
    let (bus, guard) = EventBus::builder().sink("webhook", sink).build().unwrap();
    for event in events {
        bus.emit(Event::clone(event));
    }
    guard.shutdown(PATIENCE).await
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let endpoint = Endpoint::start([], Answer::Store).await;
    conformance::check(|| Box::new(endpoint.sink())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_can_be_read_back() {
    // With bodies of one event, of a few, and of many.
    for max_body_bytes in [1, 1000, 1024 * 1024] {
        let endpoint = Endpoint::start([], Answer::Store).await;
        conformance::check_delivery(
            || Box::new(endpoint.sink().with_max_body_bytes(max_body_bytes)),
            |job_id| {
                let of_job = |line: &String| Event::from_json_line(line).unwrap().unwrap().job_id() == Some(job_id);
                endpoint.stored().into_iter().filter(of_job).collect()
            },
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_bounded() {
    let endpoint = Endpoint::start([], Answer::Store).await;
    let job = sample_job("job", 100);
    let mut sink = endpoint.sink().with_max_body_bytes(2000);
    sink.write(&job).await.unwrap();
    assert_eq!(endpoint.stored(), lines(&job));
    let requests = endpoint.requests.lock().unwrap();
    assert!(requests.len() > 5);
    for request in requests.iter() {
        assert!(request.body.len() <= 2000 || request.body.lines().count() == 1, "{}", request.body);
    }
    assert!(requests.iter().map(|request| request.batch).eq(0..requests.len() as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_restarts_loses_nothing() {
    let endpoint = Endpoint::start([Answer::Status(503), Answer::Status(503)], Answer::Store).await;
    let job = sample_job("job", 20);
    let report = deliver(endpoint.sink(), &job).await;
    assert!(report.is_clean(), "{report}");
    assert_eq!(endpoint.stored(), lines(&job));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_response_doubles_nothing() {
    let endpoint = Endpoint::start(
        [Answer::StoreAndFail, Answer::StoreAndFail, Answer::Store, Answer::StoreAndFail],
        Answer::Store,
    )
    .await;
    let job = sample_job("job", 20);
    let report = deliver(endpoint.sink().with_max_body_bytes(1500), &job).await;
    assert!(report.is_clean(), "{report}");
    assert_eq!(endpoint.stored(), lines(&job));
    // Sent again is the very same body.
    let requests = endpoint.requests.lock().unwrap();
    for pair in requests.windows(2).filter(|pair| pair[0].batch == pair[1].batch) {
        assert_eq!((&pair[0].stream, &pair[0].body), (&pair[1].stream, &pair[1].body));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_again_is_the_same_even_if_more_has_come() {
    let endpoint = Endpoint::start([Answer::StoreAndFail], Answer::Store).await;
    let job = sample_job("job", 4);
    let mut sink = endpoint.sink();
    let error = sink.write(&job[..3]).await.unwrap_err();
    assert!(matches!(error, SinkError::Transient { written: 0, .. }), "{error:?}");
    sink.write(&job).await.unwrap();
    assert_eq!(endpoint.stored(), lines(&job));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_event_costs_no_other() {
    // Refused are the two tasks whose partition is 3 or 13.
    let endpoint = Endpoint::start([], Answer::RefuseWith(r#"3]}}"#)).await;
    let job = sample_job("job", 20);
    let report = deliver(endpoint.sink(), &job).await;
    let stats = &report.sinks[0].stats;
    assert_eq!((stats.failed, stats.written), (2, stats.emitted - 2), "{report}");
    assert_eq!(stats.last_error.as_ref().unwrap().message, "endpoint answered 422 Unprocessable Entity: not that");
    let expected: Vec<_> = lines(&job).into_iter().filter(|line| !line.contains(r#"3]}}"#)).collect();
    let stored = endpoint.stored();
    let (end, timeline) = stored.split_last().unwrap();
    assert_eq!(timeline, &expected[..expected.len() - 1]);
    assert!(end.contains(r#""ev":"JobEnd""#));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_refuses_all_is_told_of() {
    let endpoint = Endpoint::start([], Answer::Status(400)).await;
    let job = sample_job("job", 3);
    let report = deliver(endpoint.sink(), &job).await;
    let stats = &report.sinks[0].stats;
    assert_eq!((stats.failed, stats.written), (job.len() as u64, 0), "{report}");
    assert_eq!(stats.last_error.as_ref().unwrap().message, "endpoint answered 400 Bad Request: because");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_retire_the_sink() {
    for status in [401, 403, 302] {
        let endpoint = Endpoint::start([], Answer::Status(status)).await;
        let error = endpoint.sink().write(&sample_job("job", 1)).await.unwrap_err();
        assert!(matches!(error, SinkError::Fatal { written: 0, .. }), "{status}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_may_recover_is_tried_again() {
    for status in [408, 429, 500, 502, 503, 504] {
        let endpoint = Endpoint::start([Answer::Store, Answer::Status(status)], Answer::Store).await;
        let job = sample_job("job", 1);
        let mut sink = endpoint.sink().with_max_body_bytes(1);
        let error = sink.write(&job).await.unwrap_err();
        // One body, of one event, was accepted before.
        assert!(matches!(error, SinkError::Transient { written: 1, .. }), "{status}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_may_pass_too() {
    let endpoint = Endpoint::start([Answer::Hang], Answer::Store).await;
    let job = sample_job("job", 1);
    let mut sink = endpoint.sink().with_timeout(Duration::from_millis(200));
    let error = sink.write(&job).await.unwrap_err();
    assert!(matches!(error, SinkError::Transient { written: 0, .. }), "{error:?}");
    sink.write(&job).await.unwrap();
    assert_eq!(endpoint.stored(), lines(&job));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_listens() {
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let mut sink = WebhookSink::new(&format!("http://127.0.0.1:{port}/secret-path")).unwrap();
    let error = sink.write(&sample_job("job", 1)).await.unwrap_err();
    let SinkError::Transient { written: 0, source } = error else { panic!("{error:?}") };
    assert!(!source.to_string().contains("secret-path"), "{source}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_endpoint_does_not_outlast_the_deadline() {
    let endpoint = Endpoint::start([], Answer::Hang).await;
    let (bus, guard) = EventBus::builder().sink("webhook", endpoint.sink()).build().unwrap();
    for event in sample_job("job", 5) {
        bus.emit(Event::clone(&event));
    }
    endpoint.asked.notified().await;
    let report = guard.shutdown(Duration::from_millis(100)).await;
    assert!(!report.is_clean());
    assert_eq!(report.sinks[0].stats.written, 0);
    assert_eq!(report.sinks[0].stats.state, SinkState::Closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn clones_have_streams_of_their_own() {
    let endpoint = Endpoint::start([], Answer::Store).await;
    let sink = endpoint.sink();
    for mut sink in [sink.clone(), sink.clone()] {
        sink.write(&sample_job("job", 1)).await.unwrap();
        // As the bus does after a panic.
        sink.clone().write(&sample_job("job", 1)).await.unwrap();
    }
    let requests = endpoint.requests.lock().unwrap();
    let streams: std::collections::HashSet<_> = requests.iter().map(|request| &request.stream).collect();
    assert_eq!((requests.len(), streams.len()), (4, 4));
    assert!(requests.iter().all(|request| request.batch == 0));
}

#[test]
fn what_can_not_be_posted_to_is_explained() {
    let refused = |url| WebhookSink::new(url).unwrap_err().to_string();
    assert_eq!(refused("events"), "webhook URL \"events\" is none: relative URL without a base");
    assert_eq!(
        refused("https://example.org/"),
        "webhook URL https://example.org/ must begin with http://; for https, switch on one of reqwest's TLS features"
    );
}
