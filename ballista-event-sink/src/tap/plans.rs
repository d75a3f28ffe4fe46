//! What became of each job's plan: as submitted, how often it was planned anew, and which stages ran something else
//! than the final plan says.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::physical_plan::{ExecutionPlan, displayable};

/// The root operator of a plan that the adaptive planner runs. Its type is private to the scheduler.
const ADAPTIVE_ROOT: &str = "AdaptiveDatafusionExec";

/// Where a job's plan comes from, at the moment of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanProvenance {
    /// The physical plan as submitted, in the default format.
    pub submitted_physical_plan: Arc<str>,
    /// Whether the adaptive planner runs the job.
    pub adaptive: bool,
    /// How often the planner planned anew so far; 0 for static jobs.
    pub replans: u32,
    /// Stages, by id, whose part of the final plan is not what they executed. Empty until the job has ended.
    pub diverged_stages: Vec<u32>,
}

/// The plans of one job. Texts are rendered once, at submission: nodes of an adaptive plan change behind them.
#[derive(Debug)]
pub(crate) struct JobPlans {
    pub(crate) submitted: Arc<str>,
    pub(crate) submitted_tree: Arc<str>,
    pub(crate) adaptive: bool,
    replans: AtomicU32,
    diverged: Mutex<Arc<[u32]>>,
}

impl JobPlans {
    /// Renders a plan that was just made.
    pub(super) fn submitted(plan: &dyn ExecutionPlan) -> Self {
        Self {
            submitted: displayable(plan).indent(false).to_string().into(),
            submitted_tree: displayable(plan).tree_render().to_string().into(),
            adaptive: plan.name() == ADAPTIVE_ROOT,
            replans: AtomicU32::new(0),
            diverged: Mutex::default(),
        }
    }

    /// A copy that later replans don't touch.
    pub(super) fn snapshot(&self) -> Self {
        Self {
            submitted: Arc::clone(&self.submitted),
            submitted_tree: Arc::clone(&self.submitted_tree),
            adaptive: self.adaptive,
            replans: AtomicU32::new(self.replans()),
            diverged: Mutex::new(self.diverged()),
        }
    }

    pub(crate) fn replans(&self) -> u32 {
        self.replans.load(Ordering::Relaxed)
    }

    pub(super) fn add_replan(&self) {
        self.replans.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn diverged(&self) -> Arc<[u32]> {
        Arc::clone(&self.diverged.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_diverged(&self, stages: Vec<u32>) {
        *self.diverged.lock().unwrap_or_else(PoisonError::into_inner) = stages.into();
    }

    pub(super) fn provenance(&self) -> PlanProvenance {
        PlanProvenance {
            submitted_physical_plan: Arc::clone(&self.submitted),
            adaptive: self.adaptive,
            replans: self.replans(),
            diverged_stages: self.diverged().to_vec(),
        }
    }
}

/// The plans of all jobs that the scheduler remembers: dropped when it forgets the job.
#[derive(Default)]
pub(crate) struct Plans {
    by_job: Mutex<HashMap<Arc<str>, Arc<JobPlans>>>,
}

impl Plans {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<JobPlans>>> {
        self.by_job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, job_id: &str, plans: Arc<JobPlans>) {
        self.lock().insert(job_id.into(), plans);
    }

    pub(crate) fn get(&self, job_id: &str) -> Option<Arc<JobPlans>> {
        self.lock().get(job_id).cloned()
    }

    pub(super) fn forget(&self, job_id: &str) {
        self.lock().remove(job_id);
    }
}
