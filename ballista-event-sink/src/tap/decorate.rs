//! Puts the decorator around the graphs of jobs that have just reached the scheduler's cache.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ballista_core::JobId;
use ballista_core::serde::protobuf::job_status::Status;
use ballista_scheduler::planner::DefaultDistributedPlanner;
use ballista_scheduler::state::execution_graph::{ExecutionGraphBox, StaticExecutionGraph};
use ballista_scheduler::state::task_manager::JobInfoCache;
use datafusion::arrow::datatypes::Schema;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::prelude::SessionConfig;

use super::Shared;
use super::graph::TappedGraph;

/// Jobs that were planned and whose graph is not decorated yet.
///
/// Almost always empty, and then a poll costs one atomic load.
#[derive(Default)]
pub(super) struct Undecorated {
    /// Size of `jobs`; what the hot path reads.
    count: AtomicUsize,
    jobs: Mutex<HashSet<Arc<str>>>,
    /// Held while decorating: whoever comes by meanwhile waits until it is done, rather than overtake it with a status.
    turn: tokio::sync::Mutex<()>,
}

impl Undecorated {
    pub(super) fn add(&self, job_id: Arc<str>) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.insert(job_id);
        self.count.store(jobs.len(), Ordering::Release);
    }

    pub(super) fn remove(&self, job_id: &str) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.remove(job_id);
        self.count.store(jobs.len(), Ordering::Release);
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn list(&self) -> Vec<Arc<str>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Shared {
    /// The scheduler's cache of running jobs; `None` until the tap is bound.
    pub(super) fn running_jobs(&self) -> Option<Arc<HashMap<JobId, JobInfoCache>>> {
        self.scheduler.get().map(|scheduler| (scheduler.running_jobs)())
    }

    /// Decorates every waiting job that is in the cache by now.
    ///
    /// Takes graph locks, so no caller may hold one: neither binding nor polling does.
    pub(super) async fn decorate_waiting(
        self: &Arc<Self>,
        cache: impl FnOnce() -> Option<Arc<HashMap<JobId, JobInfoCache>>>,
    ) {
        if self.undecorated.is_empty() {
            return;
        }
        let _turn = self.undecorated.turn.lock().await;
        let waiting = self.undecorated.list();
        if waiting.is_empty() {
            return;
        }
        let Some(cache) = cache() else { return };
        for job_id in waiting {
            // Planned, but not cached yet: the next one who comes by decorates it.
            let Some(job) = cache.get(&*job_id) else { continue };
            let mut graph = job.execution_graph.write().await;
            // The lock may have been held by whoever ended the job.
            if self.jobs.set_decorated(&job_id) {
                let stand_in = stand_in(&graph);
                let inner = std::mem::replace(&mut *graph, stand_in);
                *graph = Box::new(TappedGraph::observing(inner, Arc::clone(&job_id), Arc::clone(self)));
            }
            self.undecorated.remove(&job_id);
        }
    }
}

impl Shared {
    /// A decorated copy of a graph that is not decorated, if the job is over.
    pub(super) fn decorated_snapshot(&self, job_id: &str, graph: &ExecutionGraphBox) -> Option<ExecutionGraphBox> {
        let over = matches!(graph.status().status, Some(Status::Successful(_) | Status::Failed(_)));
        if !over || self.jobs.is_decorated(job_id) {
            return None;
        }
        let plans = self.plans.get(job_id)?;
        Some(Box::new(TappedGraph::snapshot(graph.cloned(), plans)))
    }
}

/// What stands in the cache while `graph` is moved into its decorator: for two statements, under the write lock.
///
/// Made once, then cloned. A clone of the graph itself would do as well, at the price of copying all its stages.
fn stand_in(graph: &ExecutionGraphBox) -> ExecutionGraphBox {
    static STAND_IN: OnceLock<Option<ExecutionGraphBox>> = OnceLock::new();
    let stand_in = STAND_IN.get_or_init(|| {
        StaticExecutionGraph::new(
            "",
            &JobId::new(""),
            "",
            "",
            Arc::new(EmptyExec::new(Arc::new(Schema::empty()))),
            0,
            Arc::new(SessionConfig::new()),
            &mut DefaultDistributedPlanner::new(),
            None,
        )
        .ok()
        .map(|graph| Box::new(graph) as ExecutionGraphBox)
    });
    stand_in.as_ref().unwrap_or(graph).cloned()
}
