//! [`JobState`], decorated: jobs queued, planned, failed in planning, and ended.

use std::collections::HashSet;
use std::sync::Arc;

use ballista_core::error::Result;
use ballista_core::serde::protobuf::{JobStatus, job_status::Status};
use ballista_core::{JobId, JobStatusSubscriber};
use ballista_scheduler::cluster::{JobState, JobStateEventStream};
use ballista_scheduler::state::execution_graph::ExecutionGraphBox;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::jobs::Saved;
use super::plans::JobPlans;
use super::{Shared, now_ms};
use crate::event::{JobQueued, JobStart};

pub(super) struct TappedJobState {
    inner: Arc<dyn JobState>,
    shared: Arc<Shared>,
}

impl TappedJobState {
    pub(super) fn new(inner: Arc<dyn JobState>, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait::async_trait]
impl JobState for TappedJobState {
    fn accept_job(&self, job_id: &JobId, job_name: &str, queued_at: u64) -> Result<()> {
        self.inner.accept_job(job_id, job_name, queued_at)?;
        self.shared.jobs.queued(JobQueued {
            job_id: job_id.to_string(),
            job_name: job_name.to_owned(),
            queued_at,
            scheduler_id: self.shared.scheduler_id(),
        });
        Ok(())
    }

    fn pending_job_number(&self) -> usize {
        self.inner.pending_job_number()
    }

    /// The job was planned, and reaches the scheduler's cache only after this returns.
    async fn submit_job(
        &self,
        job_id: JobId,
        graph: &ExecutionGraphBox,
        subscriber: Option<JobStatusSubscriber>,
    ) -> Result<()> {
        // Rendered now: nodes of an adaptive plan share state that changes later.
        let plans = Arc::new(JobPlans::submitted(graph.physical_plan().as_ref()));
        let start = job_start(graph, &plans);
        self.inner.submit_job(job_id, graph, subscriber).await?;
        self.shared.plans.add(&start.job_id, plans);
        self.shared.undecorated.add(start.job_id.as_str().into());
        self.shared.jobs.planned(start);
        Ok(())
    }

    async fn get_jobs(&self) -> Result<HashSet<JobId>> {
        self.inner.get_jobs().await
    }

    async fn get_all_jobs(&self) -> Result<HashSet<JobId>> {
        self.inner.get_all_jobs().await
    }

    async fn get_job_status(&self, job_id: &JobId) -> Result<Option<JobStatus>> {
        self.inner.get_job_status(job_id).await
    }

    async fn get_execution_graph(&self, job_id: &JobId) -> Result<Option<ExecutionGraphBox>> {
        self.inner.get_execution_graph(job_id).await
    }

    /// Called for every update, with the graph's lock held, and once more with the final snapshot, without.
    async fn save_job(&self, job_id: &JobId, graph: &ExecutionGraphBox) -> Result<()> {
        // A job that ended before it could be decorated is kept decorated.
        let result = match self.shared.decorated_snapshot(job_id.as_str(), graph) {
            Some(snapshot) => self.inner.save_job(job_id, &snapshot).await,
            None => self.inner.save_job(job_id, graph).await,
        };
        // Whether it could be saved or not: the job has ended.
        match &graph.status().status {
            Some(Status::Successful(_)) => self.shared.job_saved(job_id.as_str(), graph, Saved::Succeeded),
            Some(Status::Failed(_)) => self.shared.job_saved(job_id.as_str(), graph, Saved::Failed),
            Some(Status::Queued(_) | Status::Running(_)) | None => {}
        }
        result
    }

    async fn fail_unscheduled_job(&self, job_id: &JobId, reason: String) -> Result<()> {
        let result = self.inner.fail_unscheduled_job(job_id, reason.clone()).await;
        self.shared.planning_failed(job_id.as_str(), reason);
        result
    }

    async fn remove_job(&self, job_id: &JobId) -> Result<()> {
        // Its JobEnd may still be reading what is going to be removed.
        self.shared.captures.finished(job_id.as_str()).await;
        self.shared.plans.forget(job_id.as_str());
        self.inner.remove_job(job_id).await
    }

    async fn try_acquire_job(&self, job_id: &JobId) -> Result<Option<ExecutionGraphBox>> {
        self.inner.try_acquire_job(job_id).await
    }

    async fn job_state_events(&self) -> Result<JobStateEventStream> {
        self.inner.job_state_events().await
    }

    async fn create_or_update_session(&self, session_id: &str, config: &SessionConfig) -> Result<Arc<SessionContext>> {
        self.inner.create_or_update_session(session_id, config).await
    }

    async fn remove_session(&self, session_id: &str) -> Result<()> {
        self.inner.remove_session(session_id).await
    }

    fn produce_config(&self) -> SessionConfig {
        self.inner.produce_config()
    }
}

/// What a graph that was just planned says.
fn job_start(graph: &ExecutionGraphBox, plans: &JobPlans) -> JobStart {
    JobStart {
        job_id: graph.job_id().to_string(),
        job_name: graph.job_name().to_owned(),
        queued_at: 0,
        submitted_at: now_ms(),
        scheduler_id: graph.scheduler_id().map(str::to_owned),
        logical_plan: graph.logical_plan().map(str::to_owned),
        physical_plan: Some(plans.submitted.to_string()),
        adaptive: plans.adaptive,
    }
}
