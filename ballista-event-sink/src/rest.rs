//! The scheduler's REST API, with what the tap knows added, and two corrections.
//!
//! - `/api/job/{job_id}`: `physical_plan` is the plan as submitted, for static and adaptive jobs alike. Added are
//!   `adaptive`, `replans`, and for adaptive jobs `final_physical_plan`, the plan after the latest replan, and
//!   `diverged_stages` where there are any. `/api/jobs` has `adaptive` and `replans`.
//! - A cancelled job reads `Cancelled`. Stock knows no such status: a job that a user cancelled reads `Failed`, with
//!   the message `Failed: Cancelled`.
//! - A job's configuration has its keys in order. Stock serves them in the order of a hash table, another one for each
//!   request, and sorts them only in its event log.
//!
//! The live API and the copy that JobEnd stores both come through here, so they are the same bytes. All else passes as
//! it is.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use ballista_scheduler::api::get_routes;
use ballista_scheduler::scheduler_server::SchedulerServer;
use datafusion_proto::logical_plan::AsLogicalPlan;
use datafusion_proto::physical_plan::AsExecutionPlan;
use http::{Method, StatusCode, header};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::event::RawJson;
use crate::tap::{JobPlans, Plans, Tap};

/// The status of a job that a user cancelled.
pub(crate) const CANCELLED: &str = "Cancelled";
/// The status of a job that failed.
pub(crate) const FAILED: &str = "Failed";
/// What stock makes of a cancelled job.
const STOCK_CANCELLED: &str = "Failed: Cancelled";

/// The stock REST routes of a scheduler, with what its tap knows.
pub fn routes<T, U>(scheduler: Arc<SchedulerServer<T, U>>, tap: &Tap) -> Router
where
    T: AsLogicalPlan + Clone + Send + Sync + 'static,
    U: AsExecutionPlan + Send + Sync + 'static,
{
    get_routes(scheduler).layer(from_fn_with_state(tap.plans(), amend))
}

/// What is amended in the body of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Jobs,
    Job,
    JobConfig,
}

impl Endpoint {
    /// The endpoint at `/api/jobs`, `/api/job/{job_id}` or `/api/job/{job_id}/config`.
    fn of(path: &str) -> Option<Self> {
        if path == "/api/jobs" {
            return Some(Self::Jobs);
        }
        match path.strip_prefix("/api/job/")?.split_once('/') {
            None => Some(Self::Job),
            Some((_, "config")) => Some(Self::JobConfig),
            Some(_) => None,
        }
    }

    /// The amended body; `None` if it is not what is expected here, and is passed on.
    fn amend(self, body: &[u8], plans: &Plans, tree: bool) -> Option<Vec<u8>> {
        let amended = match self {
            Self::Jobs => {
                let mut jobs: Vec<Fields<'_>> = serde_json::from_slice(body).ok()?;
                for job in &mut jobs {
                    job.correct_status();
                    job.add_counts(job.plans(plans).as_deref())?;
                }
                serde_json::to_vec(&jobs)
            }
            Self::Job => {
                let mut job: Fields<'_> = serde_json::from_slice(body).ok()?;
                job.correct_status();
                let known = job.plans(plans);
                job.add_counts(known.as_deref())?;
                if let Some(plans) = known {
                    job.add_plans(&plans, tree)?;
                }
                serde_json::to_vec(&job)
            }
            Self::JobConfig => {
                let sorted: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(body).ok()?;
                serde_json::to_vec(&sorted)
            }
        };
        amended.ok()
    }
}

async fn amend(State(plans): State<Arc<Plans>>, request: Request, next: Next) -> Response {
    let endpoint = if request.method() == Method::GET { Endpoint::of(request.uri().path()) } else { None };
    let tree = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "plan_format=tree"));
    let response = next.run(request).await;
    let Some(endpoint) = endpoint.filter(|_| response.status() == StatusCode::OK) else {
        return response;
    };
    let (mut parts, body) = response.into_parts();
    // The body was made in this process: there is no limit to enforce, and no connection to fail.
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return Response::from_parts(parts, Body::empty());
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    let bytes = endpoint.amend(&bytes, &plans, tree).map_or(bytes, Bytes::from);
    Response::from_parts(parts, Body::from(bytes))
}

/// A job that has no plan, as the API shows it: what is added to it is what is added to a job that was never planned.
pub(crate) fn unplanned(job: &impl Serialize) -> Result<RawJson, serde_json::Error> {
    let text = serde_json::to_string(job)?;
    let mut job: Fields<'_> = serde_json::from_str(&text)?;
    // Numbers and a boolean: they can be serialised.
    let _ = job.add_counts(None);
    RawJson::of(&job)
}

/// A JSON object whose fields keep their order and their text.
struct Fields<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_ref())
    }

    fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(|value| serde_json::from_str(value.get()).ok())
    }

    /// Replaces a field where it stands, or adds it behind the others.
    fn set(&mut self, name: &'static str, value: Cow<'a, RawValue>) {
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((Cow::Borrowed(name), value)),
        }
    }

    fn set_value(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) -> Option<()> {
        self.set(name, Cow::Owned(serde_json::value::to_raw_value(value).ok()?));
        Some(())
    }

    fn plans(&self, plans: &Plans) -> Option<Arc<JobPlans>> {
        plans.get(&self.text("job_id")?)
    }

    fn correct_status(&mut self) {
        if self.text("status").as_deref() == Some(FAILED)
            && self.text("job_status").as_deref() == Some(STOCK_CANCELLED)
            && let Ok(cancelled) = serde_json::value::to_raw_value(CANCELLED)
        {
            self.set("status", Cow::Owned(cancelled.clone()));
            self.set("job_status", Cow::Owned(cancelled));
        }
    }

    fn add_counts(&mut self, plans: Option<&JobPlans>) -> Option<()> {
        self.set_value("adaptive", &plans.is_some_and(|plans| plans.adaptive))?;
        self.set_value("replans", &plans.map_or(0, JobPlans::replans))
    }

    /// Stock's plan is that of the moment: for an adaptive job the one after the latest replan.
    fn add_plans(&mut self, plans: &JobPlans, tree: bool) -> Option<()> {
        let latest = self.0.iter().find(|(key, _)| key == "physical_plan").map(|(_, value)| value.clone())?;
        self.set_value("physical_plan", if tree { &*plans.submitted_tree } else { &*plans.submitted })?;
        if plans.adaptive {
            self.set("final_physical_plan", latest);
            let diverged = plans.diverged();
            if !diverged.is_empty() {
                self.set_value("diverged_stages", &*diverged)?;
            }
        }
        Some(())
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

    fn amended(endpoint: Endpoint, body: &str) -> String {
        String::from_utf8(endpoint.amend(body.as_bytes(), &Plans::default(), false).unwrap()).unwrap()
    }

    #[test]
    fn nothing_but_jobs_and_configuration_is_touched() {
        assert_eq!(Endpoint::of("/api/jobs"), Some(Endpoint::Jobs));
        assert_eq!(Endpoint::of("/api/job/06fz"), Some(Endpoint::Job));
        assert_eq!(Endpoint::of("/api/job/06fz/config"), Some(Endpoint::JobConfig));
        for path in ["/api/job/06fz/stages", "/api/job/06fz/stage/1/dot", "/api/executors", "/"] {
            assert_eq!(Endpoint::of(path), None, "{path}");
        }
    }

    #[test]
    fn configuration_is_sorted() {
        let sorted = amended(Endpoint::JobConfig, r#"{"b":"2","a\u0041":"1","a":""}"#);
        assert_eq!(sorted, r#"{"a":"","aA":"1","b":"2"}"#);
    }

    #[test]
    fn a_cancelled_job_is_corrected_and_nothing_else_moves() {
        let body = r#"{"z":1.50,"job_status":"Failed: Cancelled","status":"Failed","a":{"y":1,"b":[ 2 ]}}"#;
        let expected = r#"{"z":1.50,"job_status":"Cancelled","status":"Cancelled","a":{"y":1,"b":[ 2 ]},"adaptive":false,"replans":0}"#;
        assert_eq!(amended(Endpoint::Job, body), expected);
        assert_eq!(amended(Endpoint::Jobs, &format!("[{body}]")), format!("[{expected}]"));
    }

    #[test]
    fn a_job_that_merely_mentions_it_stays_failed() {
        let failed = r#"{"status":"Failed","job_status":"Failed: stage 1: Failed: Cancelled by quota"}"#;
        assert!(amended(Endpoint::Job, failed).starts_with(failed.trim_end_matches('}')));
    }

    #[test]
    fn what_is_no_job_passes() {
        assert_eq!(Endpoint::Job.amend(b"[1]", &Plans::default(), false), None);
    }
}
