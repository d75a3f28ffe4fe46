//! JobEnd: what the scheduler's REST API says about a job that ended, taken in process.
//!
//! The scheduler's event loop is not held up: the responses are rendered by a task of their own, from the snapshot that
//! the job state keeps. Shutdown waits for it, and the snapshot is not removed before it is done.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use ballista_api_types::dto::{JobResponse, QueryStagesResponse};
use ballista_core::serde::protobuf::job_status::Status;
use ballista_scheduler::state::execution_graph::ExecutionGraphBox;
use http::Request;
use tokio::sync::watch;
use tower::ServiceExt;

use super::jobs::{Job, Saved};
use super::stages::aborted_unseen;
use super::{BoundScheduler, Shared, now_ms};
use crate::event::{DroppedEvents, Event, EventData, JobEnd, JobEndStatus, JobIndex, RawJson};
use crate::rest::{CANCELLED, FAILED, unplanned};

/// The message with which the scheduler aborts a job that a user cancelled.
const CANCEL_MESSAGE: &str = "Cancelled";

/// Jobs whose JobEnd is being made.
#[derive(Default)]
pub(super) struct Captures {
    running: Mutex<HashMap<Arc<str>, watch::Receiver<()>>>,
}

impl Captures {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, watch::Receiver<()>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the job's JobEnd was made, if it is being made.
    pub(super) async fn finished(&self, job_id: &str) {
        let capture = self.lock().get(job_id).cloned();
        if let Some(mut capture) = capture {
            // Nothing is ever sent: it ends when the sender is dropped.
            let _ = capture.changed().await;
        }
    }
}

/// What is known of an ended job without asking the REST API.
struct EndedJob {
    job_id: Arc<str>,
    name: String,
    status: JobEndStatus,
    queued_at: u64,
    started_at: u64,
    ended_at: u64,
    num_stages: usize,
    completed_stages: usize,
}

/// The four responses that JobEnd embeds.
struct Responses {
    job: RawJson,
    stages: RawJson,
    config: RawJson,
    dot: String,
}

impl Shared {
    /// The scheduler saved a snapshot with a terminal status. Emits the JobEnd, once, if it is the last.
    pub(super) fn job_saved(self: &Arc<Self>, job_id: &str, graph: &ExecutionGraphBox, saved: Saved) {
        let Some((job_id, Job { queued_at, decorated, .. })) = self.jobs.end(job_id, saved) else {
            return;
        };
        self.undecorated.remove(&job_id);
        if !decorated {
            for unseen in aborted_unseen(graph.stages(), graph.start_time()) {
                self.bus.emit(Event::of_job(Arc::clone(&job_id), unseen));
            }
        }
        let status = match &graph.status().status {
            Some(Status::Failed(failed)) if failed.error == CANCEL_MESSAGE => JobEndStatus::Cancelled,
            Some(Status::Failed(failed)) => JobEndStatus::Failed(failed.error.clone()),
            _ => JobEndStatus::Succeeded,
        };
        let ended = EndedJob {
            job_id: Arc::clone(&job_id),
            name: graph.job_name().to_owned(),
            status,
            queued_at,
            started_at: graph.start_time(),
            ended_at: graph.end_time(),
            num_stages: graph.stage_count(),
            completed_stages: graph.completed_stages(),
        };
        let hold = self.bus.hold();
        let (done, capture) = watch::channel(());
        self.captures.lock().insert(job_id, capture);
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let responses = match shared.scheduler.get() {
                Some(scheduler) => scheduler.responses(&ended.job_id).await,
                None => None,
            };
            shared.captures.lock().remove(&ended.job_id);
            drop(done);
            if responses.is_none() {
                tracing::warn!(
                    job_id = &*ended.job_id,
                    "the scheduler could not be asked about a job that ended; its JobEnd lacks the details"
                );
            }
            shared.emit_end(ended, responses);
            drop(hold);
        });
    }

    /// A job failed in planning: it has no graph, and the REST API knows no more than its name and what failed.
    pub(super) fn planning_failed(&self, job_id: &str, reason: String) {
        // Undecorated, so a failed job ends at once.
        let Some((job_id, job)) = self.jobs.end(job_id, Saved::Failed) else { return };
        self.undecorated.remove(&job_id);
        let ended = EndedJob {
            job_id,
            name: job.name,
            status: JobEndStatus::Failed(reason),
            queued_at: job.queued_at,
            started_at: 0,
            ended_at: now_ms(),
            num_stages: 0,
            completed_stages: 0,
        };
        self.emit_end(ended, None);
    }

    fn emit_end(&self, ended: EndedJob, responses: Option<Responses>) {
        let job_id = Arc::clone(&ended.job_id);
        match ended.into_event(responses) {
            Ok(end) => self.bus.emit(Event::of_job(job_id, EventData::JobEnd(Box::new(end)))),
            // The scheduler's own JSON, which it has just served: not seen, and a lost JobEnd must not be silent.
            Err(error) => tracing::error!(job_id = &*job_id, %error, "JobEnd could not be made"),
        }
    }
}

impl EndedJob {
    fn into_event(self, responses: Option<Responses>) -> Result<JobEnd, serde_json::Error> {
        let Responses { job, stages, config, dot } = match responses {
            Some(responses) => responses,
            None => self.known_responses()?,
        };
        let index: JobIndex = serde_json::from_str(job.get())?;
        Ok(JobEnd {
            queued_at: self.queued_at,
            started_at: self.started_at,
            completed_at: if self.ended_at == 0 { now_ms() } else { self.ended_at },
            status: self.status,
            index,
            job,
            stages,
            config,
            dot,
            dropped_events: DroppedEvents::new(),
        })
    }

    /// The responses as far as they are known: the entry that `/api/jobs` has for such a job, and no stages.
    fn known_responses(&self) -> Result<Responses, serde_json::Error> {
        let (status, job_status) = match &self.status {
            JobEndStatus::Succeeded => ("Completed", "Completed".to_owned()),
            JobEndStatus::Failed(error) => (FAILED, format!("{FAILED}: {error}")),
            JobEndStatus::Cancelled => (CANCELLED, CANCELLED.to_owned()),
        };
        let job = JobResponse {
            job_id: self.job_id.to_string(),
            job_name: self.name.clone(),
            job_status,
            status: status.to_owned(),
            num_stages: self.num_stages,
            completed_stages: self.completed_stages,
            percent_complete: (self.completed_stages * 100).checked_div(self.num_stages).unwrap_or(0) as u8,
            start_time: self.started_at,
            end_time: self.ended_at,
            logical_plan: None,
            physical_plan: None,
            stage_plan: None,
        };
        Ok(Responses {
            job: unplanned(&job)?,
            stages: RawJson::of(&QueryStagesResponse { stages: Vec::new() })?,
            config: RawJson::from_string("{}".to_owned())?,
            dot: String::new(),
        })
    }
}

impl BoundScheduler {
    async fn responses(&self, job_id: &str) -> Option<Responses> {
        let path = format!("/api/job/{}", percent_encoded(job_id));
        Some(Responses {
            job: RawJson::from_string(self.get(&path).await?).ok()?,
            stages: RawJson::from_string(self.get(&format!("{path}/stages")).await?).ok()?,
            config: RawJson::from_string(self.get(&format!("{path}/config")).await?).ok()?,
            // A graph that can't be drawn costs the drawing alone, as in the stock log.
            dot: self.get(&format!("{path}/dot")).await.unwrap_or_default(),
        })
    }

    async fn get(&self, path: &str) -> Option<String> {
        let request = Request::get(path).body(Body::empty()).ok()?;
        let Ok(response) = self.rest.clone().oneshot(request).await;
        if !response.status().is_success() {
            return None;
        }
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.ok()?;
        String::from_utf8(body.into()).ok()
    }
}

/// A job id as one segment of a path. Stock ids are letters and digits; an embedder's own generator makes any string.
fn percent_encoded(segment: &str) -> String {
    let mut encoded = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~.".contains(&byte) {
            encoded.push(byte.into());
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
