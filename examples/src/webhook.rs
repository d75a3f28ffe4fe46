//! [`WebhookSink`]: posts events to an HTTP endpoint, and gets them there once.
//!
//! It is a template. Copy this file, keep what is about retries, and change what is about *your* endpoint.
//!
//! # What is sent
//!
//! `POST` requests, each with some events as newline-delimited JSON (`application/x-ndjson`): the very lines that the
//! file sink would write. Lines, and not one JSON array, because a body can then end after any event, and a receiver
//! can append it to a file or feed it to a line-based collector as it is. A body holds at most
//! [`max_body_bytes`](WebhookSink::with_max_body_bytes), unless a single event is larger than that, which then goes
//! alone.
//!
//! There is a request for whatever has happened since the last one: small ones while the endpoint keeps up, and larger
//! ones when it doesn't.
//!
//! # What the endpoint's answer means
//!
//! | answer | meaning | what the bus is told |
//! |---|---|---|
//! | 2xx | accepted | go on |
//! | none in time, no connection, 408, 429, 5xx | may pass | [`Transient`](SinkError::Transient): it waits, and tries again |
//! | 401, 403, 3xx | wrong credentials or address | [`Fatal`](SinkError::Fatal): it retires the sink |
//! | any other | not these events, ever | [`Rejected`](SinkError::Rejected): it counts the event as failed, and goes on |
//!
//! The sink itself never waits and tries again: the bus does, with pauses that grow from 100 ms to 10 s, for as long as
//! it takes, while the queue fills and, once it is full, drops. At shutdown, the bus's deadline ends it.
//!
//! # Once, and in order
//!
//! A response can get lost, and then the sink can't know whether the events arrived. It sends them again, so it is for
//! the receiver to drop what it has already. Two headers make that easy: `Event-Stream` is a name that no other
//! stream has, and `Event-Batch` counts that stream's bodies from 0. Bodies are sent strictly one after the other, and
//! one that is sent again has its old number and the same bytes. So a receiver keeps one number for each stream, and
//! ignores a body (with a 2xx) whose number isn't larger.
//!
//! # What stays behind
//!
//! Nothing is buffered beyond what the bus still holds, so nothing is lost between two calls. When the sink panics, or
//! the scheduler restarts, a new stream begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballista_event_sink::{Event, EventSink, SinkError, async_trait};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response, StatusCode, Url, redirect};

/// Header with the name of the stream that a body belongs to.
pub const STREAM_HEADER: &str = "event-stream";

/// Header with the number of a body within its stream, from 0.
pub const BATCH_HEADER: &str = "event-batch";

/// How long a request may take, unless told otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// How large a body may be, unless told otherwise: what common servers accept by default.
pub const DEFAULT_MAX_BODY_BYTES: usize = 1024 * 1024;

/// How long an unused connection is kept. Servers close idle ones after five seconds and more; a request that is sent
/// just then fails, and has to be sent again.
const KEEP_IDLE: Duration = Duration::from_secs(3);

/// How much of an error's text is kept (bytes). It ends up in a line of the scheduler's log.
const MAX_EXPLANATION: usize = 200;

/// Posts events to an HTTP endpoint. See the [module](self).
#[derive(Debug)]
pub struct WebhookSink {
    url: Url,
    timeout: Duration,
    max_body_bytes: usize,
    /// What has a place in a stream. The registered sink is only a prototype, so it has none.
    stream: Option<Stream>,
}

/// One stream of bodies.
#[derive(Debug)]
struct Stream {
    client: Client,
    name: String,
    /// Number of the next new body.
    next_batch: u64,
    /// A body that may have arrived.
    unanswered: Option<Body>,
    /// So many events at the front were in a body that was refused. They are sent one by one, so that those that are
    /// fine get through.
    suspects: usize,
}

/// Some events, ready to be sent and sent again.
#[derive(Debug)]
struct Body {
    batch: u64,
    events: usize,
    bytes: Vec<u8>,
}

/// An URL can't be posted to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// It is no URL.
    #[error("webhook URL {url:?} is none: {reason}")]
    NotAnUrl {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It is one of another protocol.
    #[error("webhook URL {url} must begin with http://; for https, switch on one of reqwest's TLS features")]
    Scheme {
        /// What was given.
        url: Url,
    },
}

impl WebhookSink {
    /// A sink that posts to `url`.
    ///
    /// Nothing is connected yet. An endpoint that is down is no reason for a scheduler not to start.
    ///
    /// # Errors
    ///
    /// [`WebhookError`] when nothing could ever be posted there.
    pub fn new(url: &str) -> Result<Self, WebhookError> {
        let not_an_url =
            |reason: &dyn ToString| WebhookError::NotAnUrl { url: url.to_owned(), reason: reason.to_string() };
        let url: Url = url.parse().map_err(|reason| not_an_url(&reason))?;
        if url.scheme() != "http" {
            return Err(WebhookError::Scheme { url });
        }
        Ok(Self { url, timeout: DEFAULT_TIMEOUT, max_body_bytes: DEFAULT_MAX_BODY_BYTES, stream: None })
    }

    /// Sets how long a request may take, from the connection to the end of the answer.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how large a body may be, a single event excepted.
    #[must_use]
    pub fn with_max_body_bytes(mut self, bytes: usize) -> Self {
        self.max_body_bytes = bytes;
        self
    }
}

/// A clone shares the configuration, and begins a stream of its own with its first event.
///
/// Not even the HTTP client is shared: its connections live on the Tokio runtime that opened them, and each sink's
/// worker has one of its own.
impl Clone for WebhookSink {
    fn clone(&self) -> Self {
        Self { url: self.url.clone(), stream: None, ..*self }
    }
}

#[async_trait]
impl EventSink for WebhookSink {
    async fn write(&mut self, batch: &[Arc<Event>]) -> Result<(), SinkError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(Stream::begin(self.timeout)?),
        };
        let mut accepted = 0;
        while accepted < batch.len() {
            // Whatever goes wrong, the bus learns how far we came, and hands over the rest.
            let sent = stream.send_some(&self.url, &batch[accepted..], self.max_body_bytes).await;
            accepted += sent.map_err(|error| error.after(accepted))?;
        }
        Ok(())
    }

    /// Nothing to do: what `write` took over has been accepted by the endpoint.
    async fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        self.stream = None;
        Ok(())
    }
}

impl Stream {
    fn begin(timeout: Duration) -> Result<Self, SinkError> {
        let client = Client::builder()
            .timeout(timeout)
            .pool_idle_timeout(KEEP_IDLE)
            // A POST that is redirected becomes a GET without a body, whose 200 would look like success.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(SinkError::fatal)?;
        Ok(Self { client, name: fresh_name(), next_batch: 0, unanswered: None, suspects: 0 })
    }

    /// Sends as many of `events`, from the front, as a body holds. Returns how many that were.
    async fn send_some(&mut self, url: &Url, events: &[Arc<Event>], max_bytes: usize) -> Result<usize, SinkError> {
        // After a transient error the bus hands over the same events again. They may have arrived, so it must be the
        // same body too, or a receiver that knows its number would drop what is new in it.
        let body = match self.unanswered.take() {
            Some(body) => body,
            None => self.next_body(events, max_bytes)?,
        };
        let answer = self
            .client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/x-ndjson")
            .header(STREAM_HEADER, &self.name)
            .header(BATCH_HEADER, body.batch)
            .body(body.bytes.clone())
            .send()
            .await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.unanswered = Some(body);
                // A webhook's URL is often its password, and this text goes to the scheduler's log.
                return Err(SinkError::transient(error.without_url()));
            }
        };
        match answer.status() {
            status if status.is_success() => {
                self.suspects = self.suspects.saturating_sub(body.events);
                Ok(body.events)
            }
            status if may_pass(status) => {
                self.unanswered = Some(body);
                Err(SinkError::transient(explain(answer).await))
            }
            status if status.is_redirection() => Err(SinkError::fatal(explain(answer).await)),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(SinkError::fatal(explain(answer).await)),
            // One event of several is to blame, and nobody says which: have them come one by one.
            _ if body.events > 1 => {
                self.suspects = body.events;
                Ok(0)
            }
            _ => {
                self.suspects = self.suspects.saturating_sub(1);
                Err(SinkError::rejected(explain(answer).await))
            }
        }
    }

    fn next_body(&mut self, events: &[Arc<Event>], max_bytes: usize) -> Result<Body, SinkError> {
        let most = if self.suspects > 0 { 1 } else { events.len() };
        let mut bytes = Vec::new();
        let mut count = 0;
        for event in &events[..most] {
            let end = bytes.len();
            if let Err(error) = event.write_json_line(&mut bytes) {
                if count == 0 {
                    return Err(SinkError::rejected(error));
                }
                break;
            }
            // The first goes in, however large: there is no smaller body for it.
            if count > 0 && bytes.len() > max_bytes {
                bytes.truncate(end);
                break;
            }
            count += 1;
        }
        let batch = self.next_batch;
        self.next_batch += 1;
        Ok(Body { batch, events: count, bytes })
    }
}

/// Whether the same request may be answered otherwise later.
fn may_pass(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

/// What the endpoint has to say about its refusal: the status, and the beginning of what came with it.
async fn explain(mut answer: Response) -> String {
    let status = answer.status();
    // One chunk is enough, and reading on would let a broken endpoint keep us.
    let text = answer.chunk().await.ok().flatten().unwrap_or_default();
    let text = String::from_utf8_lossy(&text[..text.len().min(MAX_EXPLANATION)]);
    match text.lines().next() {
        Some(line) if !line.trim().is_empty() => format!("endpoint answered {status}: {}", line.trim()),
        _ => format!("endpoint answered {status}"),
    }
}

/// The process, the moment, and a number: no stream of any scheduler on this machine had this name before.
fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    format!("{nanos:x}-{:x}-{:x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
