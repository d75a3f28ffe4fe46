//! The tap: watches a stock scheduler through the traits it calls.
//!
//! Ballista's event loop is private, but everything it does goes through public traits. The tap decorates three of
//! them: [`ClusterState`] and [`JobState`], handed to the scheduler in a [`BallistaCluster`], and [`ExecutionGraph`],
//! put around each job's graph in the scheduler's cache of running jobs before the job's first task status can arrive.
//! A decorator delegates every method, then says what it saw. It never fails, changes no answer, and never waits for a
//! sink.
//!
//! [`start_server`](crate::start_server) does all of it. For a scheduler you build yourself:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use ballista_event_sink::{EventBus, tap::Tap};
//! # use ballista_scheduler::{cluster::BallistaCluster, config::SchedulerConfig, scheduler_process::create_scheduler};
//! # use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
//! # async fn build(bus: EventBus, config: Arc<SchedulerConfig>) -> ballista_core::error::Result<()> {
//! let tap = Tap::new(bus);
//! let cluster = tap.wrap_cluster(BallistaCluster::new_from_config(&config).await?);
//! let scheduler = create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, config).await?;
//! tap.bind(&scheduler);
//! # Ok(())
//! # }
//! ```
//!
//! [`ClusterState`]: ballista_scheduler::cluster::ClusterState
//! [`JobState`]: ballista_scheduler::cluster::JobState
//! [`ExecutionGraph`]: ballista_scheduler::state::execution_graph::ExecutionGraph

mod capture;
mod cluster;
mod decorate;
mod executors;
mod graph;
mod graph_text;
mod job_state;
mod jobs;
mod metrics;
mod plans;
mod stages;
mod tasks;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use ballista_core::JobId;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::metrics::SchedulerMetricsCollector;
use ballista_scheduler::scheduler_server::SchedulerServer;
use ballista_scheduler::state::task_manager::JobInfoCache;
use datafusion_proto::logical_plan::AsLogicalPlan;
use datafusion_proto::physical_plan::AsExecutionPlan;

pub use graph::{ExecutionGraphExt, TappedGraph};
pub use plans::PlanProvenance;
pub(crate) use plans::{JobPlans, Plans};

use crate::bus::EventBus;
use capture::Captures;
use decorate::Undecorated;
use executors::Executors;
use jobs::Jobs;

/// Watches one scheduler and emits what it does. Cheap to clone; all clones are the same tap.
///
/// With a bus that has no sinks nothing is wrapped: what goes in comes out as it was.
#[derive(Clone)]
pub struct Tap {
    shared: Arc<Shared>,
}

/// What the decorators share.
struct Shared {
    bus: EventBus,
    scheduler: OnceLock<BoundScheduler>,
    jobs: Jobs,
    undecorated: Undecorated,
    executors: Executors,
    captures: Captures,
    plans: Arc<Plans>,
}

/// What the tap needs of the scheduler it is bound to.
///
/// Holds the scheduler's state, which holds the tap: a cycle, and harmless, since a stock scheduler's state lives as
/// long as its runtime anyway (its reaper of dead executors never ends).
struct BoundScheduler {
    id: String,
    running_jobs: Box<dyn Fn() -> Arc<HashMap<JobId, JobInfoCache>> + Send + Sync>,
    /// The REST API, asked in process for what JobEnd embeds.
    rest: axum::Router,
}

impl Tap {
    /// A tap that emits into `bus`. Use one for each scheduler.
    pub fn new(bus: EventBus) -> Self {
        let jobs = Jobs::new(bus.clone());
        Self {
            shared: Arc::new(Shared {
                bus,
                scheduler: OnceLock::new(),
                jobs,
                undecorated: Undecorated::default(),
                executors: Executors::default(),
                captures: Captures::default(),
                plans: Arc::default(),
            }),
        }
    }

    /// Decorates the cluster a scheduler is going to be built with.
    pub fn wrap_cluster(&self, cluster: BallistaCluster) -> BallistaCluster {
        if !self.shared.bus.is_enabled() {
            return cluster;
        }
        BallistaCluster::new(
            Arc::new(cluster::TappedClusterState::new(cluster.cluster_state(), Arc::clone(&self.shared))),
            Arc::new(job_state::TappedJobState::new(cluster.job_state(), Arc::clone(&self.shared))),
        )
    }

    /// Decorates the metrics collector a scheduler is going to be built with. Optional: it makes `submitted_at` of
    /// JobStart the very number that the scheduler itself reports.
    pub fn wrap_metrics_collector(
        &self,
        collector: Arc<dyn SchedulerMetricsCollector>,
    ) -> Arc<dyn SchedulerMetricsCollector> {
        if !self.shared.bus.is_enabled() {
            return collector;
        }
        self.shared.jobs.expect_submission_times();
        Arc::new(metrics::TappedMetricsCollector::new(collector, Arc::clone(&self.shared)))
    }

    /// Where the plan of a job comes from, as long as the scheduler remembers the job. `None` for jobs that are unknown,
    /// or not planned yet.
    pub fn plan_provenance(&self, job_id: &str) -> Option<PlanProvenance> {
        self.shared.plans.get(job_id).map(|plans| plans.provenance())
    }

    pub(crate) fn plans(&self) -> Arc<Plans> {
        Arc::clone(&self.shared.plans)
    }

    /// Ties the tap to the scheduler that was built with the decorated cluster. Call it before the scheduler serves:
    /// until then no stage and no task is seen, and a job that ends lacks its details.
    ///
    /// A second call has no effect.
    pub fn bind<T, U>(&self, scheduler: &SchedulerServer<T, U>)
    where
        T: AsLogicalPlan + Clone + Send + Sync + 'static,
        U: AsExecutionPlan + Send + Sync + 'static,
    {
        if !self.shared.bus.is_enabled() {
            return;
        }
        let state = Arc::clone(&scheduler.state);
        let bound = BoundScheduler {
            id: scheduler.scheduler_id.clone(),
            running_jobs: Box::new(move || state.task_manager.get_running_job_cache()),
            rest: crate::rest::routes(Arc::new(scheduler.clone()), self),
        };
        if self.shared.scheduler.set(bound).is_err() {
            tracing::warn!("event tap is already bound to a scheduler; use one tap for each scheduler");
        }
    }
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap")
            .field("bus", &self.shared.bus)
            .field("bound", &self.shared.scheduler.get().is_some())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn scheduler_id(&self) -> Option<String> {
        self.scheduler.get().map(|scheduler| scheduler.id.clone())
    }
}

/// Now, in milliseconds since the epoch.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
