//! The scheduler's REST API with two corrections, so that what is served live is what JobEnd stores.
//!
//! - A cancelled job reads `Cancelled`. Stock knows no such status: a job that a user cancelled reads `Failed`, with
//!   the message `Failed: Cancelled`.
//! - A job's configuration has its keys in order. Stock serves them in the order of a hash table, another one for each
//!   request, and sorts them only in its event log.
//!
//! The live API and the copy that JobEnd stores both come through here. All other bytes pass as they are.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use ballista_scheduler::api::get_routes;
use ballista_scheduler::scheduler_server::SchedulerServer;
use datafusion_proto::logical_plan::AsLogicalPlan;
use datafusion_proto::physical_plan::AsExecutionPlan;
use http::{Method, StatusCode, header};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// The status of a job that a user cancelled.
pub(crate) const CANCELLED: &str = "Cancelled";
/// The status of a job that failed.
pub(crate) const FAILED: &str = "Failed";
/// What stock makes of a cancelled job.
const STOCK_CANCELLED: &str = "Failed: Cancelled";

/// The stock REST routes of a scheduler, corrected.
pub fn routes<T, U>(scheduler: Arc<SchedulerServer<T, U>>) -> Router
where
    T: AsLogicalPlan + Clone + Send + Sync + 'static,
    U: AsExecutionPlan + Send + Sync + 'static,
{
    get_routes(scheduler).layer(from_fn(correct))
}

/// What is corrected in the body of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Correction {
    Status,
    KeyOrder,
}

impl Correction {
    /// The correction for a path: `/api/jobs`, `/api/job/{job_id}` or `/api/job/{job_id}/config`.
    fn of(path: &str) -> Option<Self> {
        if path == "/api/jobs" {
            return Some(Self::Status);
        }
        match path.strip_prefix("/api/job/")?.split_once('/') {
            None => Some(Self::Status),
            Some((_, "config")) => Some(Self::KeyOrder),
            Some(_) => None,
        }
    }

    /// The corrected body; `None` if it is right as it is.
    fn apply(self, body: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Status => with_cancelled(body),
            Self::KeyOrder => {
                let sorted: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(body).ok()?;
                serde_json::to_vec(&sorted).ok()
            }
        }
    }
}

async fn correct(request: Request, next: Next) -> Response {
    let correction = if request.method() == Method::GET { Correction::of(request.uri().path()) } else { None };
    let response = next.run(request).await;
    let Some(correction) = correction.filter(|_| response.status() == StatusCode::OK) else {
        return response;
    };
    let (mut parts, body) = response.into_parts();
    // The body was made in this process: there is no limit to enforce, and no connection to fail.
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return Response::from_parts(parts, Body::empty());
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    let bytes = correction.apply(&bytes).map_or(bytes, Bytes::from);
    Response::from_parts(parts, Body::from(bytes))
}

/// The body with cancelled jobs corrected; `None` if it needs no correction.
fn with_cancelled(body: &[u8]) -> Option<Vec<u8>> {
    // Almost always absent, and then nothing is parsed.
    let text = std::str::from_utf8(body).ok().filter(|text| text.contains(STOCK_CANCELLED))?;
    if let Ok(mut jobs) = serde_json::from_str::<Vec<Fields<'_>>>(text) {
        jobs.iter_mut().for_each(Fields::correct);
        serde_json::to_vec(&jobs).ok()
    } else {
        let mut job: Fields<'_> = serde_json::from_str(text).ok()?;
        job.correct();
        serde_json::to_vec(&job).ok()
    }
}

/// A JSON object whose fields keep their order and their text.
struct Fields<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

impl Fields<'_> {
    fn correct(&mut self) {
        let is = |name: &str, value: &str| {
            self.0.iter().any(|(key, text)| {
                key == name && serde_json::from_str::<Cow<'_, str>>(text.get()).is_ok_and(|text| text == value)
            })
        };
        if !(is("status", FAILED) && is("job_status", STOCK_CANCELLED)) {
            return;
        }
        for (key, text) in &mut self.0 {
            if (key == "status" || key == "job_status")
                && let Ok(cancelled) = serde_json::value::to_raw_value(CANCELLED)
            {
                *text = Cow::Owned(cancelled);
            }
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    let value: &'de RawValue = map.next_value()?;
                    fields.push((Cow::Owned(key), Cow::Borrowed(value)));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value.as_ref())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corrected(body: &str) -> Option<String> {
        Correction::Status.apply(body.as_bytes()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    #[test]
    fn nothing_but_status_and_config_is_touched() {
        assert_eq!(Correction::of("/api/jobs"), Some(Correction::Status));
        assert_eq!(Correction::of("/api/job/06fz"), Some(Correction::Status));
        assert_eq!(Correction::of("/api/job/06fz/config"), Some(Correction::KeyOrder));
        for path in ["/api/job/06fz/stages", "/api/job/06fz/stage/1/dot", "/api/executors", "/"] {
            assert_eq!(Correction::of(path), None, "{path}");
        }
    }

    #[test]
    fn configuration_is_sorted() {
        let sorted = Correction::KeyOrder.apply(br#"{"b":"2","a\u0041":"1","a":""}"#).unwrap();
        assert_eq!(String::from_utf8(sorted).unwrap(), r#"{"a":"","aA":"1","b":"2"}"#);
    }

    #[test]
    fn a_cancelled_job_is_corrected_and_nothing_else_moves() {
        let body = r#"{"z":1.50,"job_status":"Failed: Cancelled","status":"Failed","a":{"y":1,"b":[ 2 ]}}"#;
        let expected = r#"{"z":1.50,"job_status":"Cancelled","status":"Cancelled","a":{"y":1,"b":[ 2 ]}}"#;
        assert_eq!(corrected(body).as_deref(), Some(expected));
        assert_eq!(corrected(&format!("[{body},{{}}]")), Some(format!("[{expected},{{}}]")));
    }

    #[test]
    fn a_job_that_merely_mentions_it_stays() {
        let failed = r#"{"status":"Failed","job_status":"Failed: stage 1: Failed: Cancelled by quota"}"#;
        assert_eq!(corrected(failed).as_deref(), Some(failed));
        assert_eq!(corrected(r#"{"status":"Failed","job_status":"Failed: no"}"#), None);
    }
}
