//! [`ClusterState`], decorated: executors, and the moments at which a job's graph can be decorated in time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ballista_core::JobId;
use ballista_core::error::Result;
use ballista_core::serde::protobuf::ExecutorHeartbeat;
use ballista_core::serde::scheduler::{ExecutorData, ExecutorMetadata};
use ballista_scheduler::cluster::{BoundTask, ClusterState, ClusterStateEventStream, ExecutorSlot};
use ballista_scheduler::config::TaskDistributionPolicy;
use ballista_scheduler::state::task_manager::JobInfoCache;

use super::Shared;

pub(super) struct TappedClusterState {
    inner: Arc<dyn ClusterState>,
    shared: Arc<Shared>,
}

impl TappedClusterState {
    pub(super) fn new(inner: Arc<dyn ClusterState>, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait::async_trait]
impl ClusterState for TappedClusterState {
    async fn init(&self) -> Result<()> {
        self.inner.init().await
    }

    /// Push scheduling hands over every running job here before any of its tasks is bound, whatever the distribution
    /// policy, so no status of an undecorated job can exist.
    async fn bind_schedulable_tasks(
        &self,
        distribution: TaskDistributionPolicy,
        active_jobs: Arc<HashMap<JobId, JobInfoCache>>,
        executors: Option<HashSet<String>>,
    ) -> Result<Vec<BoundTask>> {
        self.shared.decorate_waiting(|| Some(Arc::clone(&active_jobs))).await;
        self.inner.bind_schedulable_tasks(distribution, active_jobs, executors).await
    }

    async fn unbind_tasks(&self, executor_slots: Vec<ExecutorSlot>) -> Result<()> {
        self.inner.unbind_tasks(executor_slots).await
    }

    async fn register_executor(&self, metadata: ExecutorMetadata, spec: ExecutorData) -> Result<()> {
        let newcomer = self.shared.newcomer(&metadata);
        self.inner.register_executor(metadata, spec).await?;
        if let Some(newcomer) = newcomer {
            self.shared.executor_joined(newcomer);
        }
        Ok(())
    }

    /// Pull scheduling binds without the cluster state, but every poll comes by here before it delivers statuses and
    /// before it binds. A job that a poll binds was either decorated by that poll, or cached after it came by; then
    /// the poll that brings the first status comes by here again.
    async fn save_executor_metadata(&self, metadata: ExecutorMetadata) -> Result<()> {
        let newcomer = self.shared.newcomer(&metadata);
        self.inner.save_executor_metadata(metadata).await?;
        if let Some(newcomer) = newcomer {
            self.shared.executor_joined(newcomer);
        }
        self.shared.decorate_waiting(|| self.shared.running_jobs()).await;
        Ok(())
    }

    async fn get_executor_metadata(&self, executor_id: &str) -> Result<ExecutorMetadata> {
        self.inner.get_executor_metadata(executor_id).await
    }

    async fn registered_executor_metadata(&self) -> Vec<ExecutorMetadata> {
        self.inner.registered_executor_metadata().await
    }

    async fn save_executor_heartbeat(&self, heartbeat: ExecutorHeartbeat) -> Result<()> {
        self.inner.save_executor_heartbeat(heartbeat).await
    }

    async fn remove_executor(&self, executor_id: &str) -> Result<()> {
        self.inner.remove_executor(executor_id).await?;
        self.shared.executor_left(executor_id);
        Ok(())
    }

    fn executor_heartbeats(&self) -> HashMap<String, ExecutorHeartbeat> {
        self.inner.executor_heartbeats()
    }

    fn get_executor_heartbeat(&self, executor_id: &str) -> Option<ExecutorHeartbeat> {
        self.inner.get_executor_heartbeat(executor_id)
    }

    async fn cluster_state_events(&self) -> Result<ClusterStateEventStream> {
        self.inner.cluster_state_events().await
    }
}
