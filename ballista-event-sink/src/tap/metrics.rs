//! The scheduler's metrics collector, decorated: when a job was submitted, to the number.

use std::sync::Arc;

use ballista_core::JobId;
use ballista_core::error::Result;
use ballista_scheduler::metrics::SchedulerMetricsCollector;

use super::Shared;

pub(super) struct TappedMetricsCollector {
    inner: Arc<dyn SchedulerMetricsCollector>,
    shared: Arc<Shared>,
}

impl TappedMetricsCollector {
    pub(super) fn new(inner: Arc<dyn SchedulerMetricsCollector>, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

#[deny(clippy::missing_trait_methods)]
impl SchedulerMetricsCollector for TappedMetricsCollector {
    fn record_submitted(&self, job_id: &JobId, queued_at: u64, submitted_at: u64) {
        self.inner.record_submitted(job_id, queued_at, submitted_at);
        self.shared.jobs.start(job_id.as_str(), Some(submitted_at));
        // The job is in the cache by now. Not needed for its events: what executes it decorates it in time. But a job
        // that waits for an executor is served with what only its decorator knows.
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move { shared.decorate_waiting(|| shared.running_jobs()).await });
    }

    fn record_completed(&self, job_id: &JobId, queued_at: u64, completed_at: u64) {
        self.inner.record_completed(job_id, queued_at, completed_at);
    }

    fn record_failed(&self, job_id: &JobId, queued_at: u64, failed_at: u64) {
        self.inner.record_failed(job_id, queued_at, failed_at);
    }

    fn record_cancelled(&self, job_id: &JobId) {
        self.inner.record_cancelled(job_id);
    }

    fn set_pending_tasks_queue_size(&self, value: u64) {
        self.inner.set_pending_tasks_queue_size(value);
    }

    fn gather_metrics(&self) -> Result<Option<(Vec<u8>, String)>> {
        self.inner.gather_metrics()
    }
}
