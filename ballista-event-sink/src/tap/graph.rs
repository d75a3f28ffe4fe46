//! [`ExecutionGraph`], decorated: stages and tasks.
//!
//! The scheduler changes a job's graph only through this trait, and the graph's own methods call each other without
//! passing the decorator. So it does not listen for single steps: around each call that can change something it
//! compares the stages with what it last saw.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use ballista_core::JobId;
use ballista_core::error::Result;
use ballista_core::serde::protobuf::job_status::Status;
use ballista_core::serde::protobuf::{JobStatus, TaskStatus};
use ballista_core::serde::scheduler::{ExecutorMetadata, PartitionLocation};
use ballista_scheduler::scheduler_server::event::QueryStageSchedulerEvent;
use ballista_scheduler::state::execution_graph::{ExecutionGraph, ExecutionGraphBox, RunningTaskInfo};
use ballista_scheduler::state::execution_stage::{ExecutionStage, RunningStage};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::SessionConfig;

use super::plans::JobPlans;
use super::stages::StageTracker;
use super::tasks::task_end;
use super::{Shared, graph_text, now_ms};
use crate::event::{Event, EventData, JobPlanRevision};
use crate::plan::{PlanTree, changes, subtree_of_stage, unresolved_stages};

/// What a decorated graph knows beyond the stock one.
pub trait ExecutionGraphExt: ExecutionGraph {
    /// The physical plan as it was submitted, for static and adaptive jobs alike, in the default format. `None` if the
    /// graph was not seen at submission.
    fn submitted_physical_plan(&self) -> Option<&str>;

    /// Whether the adaptive planner runs the job.
    fn is_adaptive(&self) -> bool;

    /// How often the planner planned anew so far: once for each stage that completed while the plan still waited for
    /// it. 0 for static graphs.
    fn replan_count(&self) -> u32;
}

/// A job's graph, watched. Its clones are snapshots: they keep what is known, and nothing happens in them.
pub struct TappedGraph {
    inner: ExecutionGraphBox,
    plans: Arc<JobPlans>,
    /// `None` in clones.
    observer: Option<Observer>,
}

struct Observer {
    job_id: Arc<str>,
    shared: Arc<Shared>,
    stages: StageTracker,
    /// The job's JobStart is known to be out.
    started: bool,
    /// For adaptive jobs.
    replans: Option<ReplanObserver>,
}

/// Watches the plan of an adaptive job.
struct ReplanObserver {
    /// The stages that the plan waits for.
    waiting_for: HashSet<usize>,
    /// What each stage runs: the plan below its exchange when it became runnable. Not rendered before the end.
    executed: HashMap<usize, Arc<dyn ExecutionPlan>>,
    /// The plan after the last replan, when revisions are wanted.
    last: Option<PlanTree>,
    revision: u32,
}

impl TappedGraph {
    /// Watches `inner`, whose first stages run already.
    pub(super) fn observing(inner: ExecutionGraphBox, job_id: Arc<str>, shared: Arc<Shared>) -> Self {
        let plan = inner.physical_plan();
        // Known since the job was submitted, unless it was never seen to be.
        let plans = shared.plans.get(&job_id).unwrap_or_else(|| Arc::new(JobPlans::submitted(plan.as_ref())));
        let started = shared.jobs.is_started(&job_id);
        let replans = plans.adaptive.then(|| ReplanObserver {
            waiting_for: unresolved_stages(plan.as_ref()),
            executed: HashMap::new(),
            last: shared.bus.wants_plan_revisions().then(|| PlanTree::of(plan.as_ref())),
            revision: 0,
        });
        let observer = Observer { job_id, shared, stages: StageTracker::default(), started, replans };
        let mut graph = Self { inner, plans, observer: Some(observer) };
        // Otherwise they are told with the first thing that happens, behind the JobStart.
        if started {
            graph.observe();
        }
        graph
    }

    /// A graph in which nothing happens any more.
    pub(super) fn snapshot(inner: ExecutionGraphBox, plans: Arc<JobPlans>) -> Self {
        Self { inner, plans, observer: None }
    }

    /// Makes a call that may change stages, then tells which it changed.
    fn watch<R>(&mut self, call: impl FnOnce(&mut ExecutionGraphBox) -> R) -> R {
        let result = call(&mut self.inner);
        self.observe();
        result
    }

    fn observe(&mut self) {
        if let Some(observer) = &mut self.observer {
            observer.compare(&self.inner);
        }
    }

    /// Updates tasks of one stage, or of a static job.
    fn update(
        &mut self,
        executor: &ExecutorMetadata,
        statuses: Vec<TaskStatus>,
        max_task_failures: usize,
        max_stage_failures: usize,
    ) -> Result<Vec<QueryStageSchedulerEvent>> {
        let Some(observer) = &mut self.observer else {
            return self.inner.update_task_status(executor, statuses, max_task_failures, max_stage_failures);
        };
        observer.compare(&self.inner);
        // Before the update: it may roll back or drop the stage whose plan tells what the metrics mean.
        observer.tasks_ended(&executor.id, &statuses, self.inner.stages());
        let waiting = observer.waiting_stage(&statuses, self.inner.stages());
        let result = self.inner.update_task_status(executor, statuses, max_task_failures, max_stage_failures);
        if let Some(stage_id) = waiting
            && matches!(self.inner.stages().get(&stage_id), Some(ExecutionStage::Successful(_)))
        {
            self.plans.add_replan();
            observer.replanned(stage_id, &self.inner);
        }
        observer.compare(&self.inner);
        if !matches!(self.inner.status().status, Some(Status::Running(_))) {
            self.plans.set_diverged(observer.diverged(&self.inner));
        }
        result
    }
}

impl Observer {
    fn emit(&mut self, data: EventData) {
        if !self.started {
            self.shared.jobs.start(&self.job_id, None);
            self.started = true;
        }
        self.shared.bus.emit(Event::of_job(Arc::clone(&self.job_id), data));
    }

    /// Tells which stages changed.
    fn compare(&mut self, graph: &ExecutionGraphBox) {
        for change in self.stages.compare(graph.stages()) {
            if let (EventData::StageStart(start), Some(replans)) = (&change, &mut self.replans) {
                replans.stage_runs(start.stage_id as usize, graph);
            }
            self.emit(change);
        }
    }

    /// The stage that these updates are of, if it runs and the plan waits for it.
    fn waiting_stage(&self, statuses: &[TaskStatus], stages: &HashMap<usize, ExecutionStage>) -> Option<usize> {
        let stage_id = statuses.first()?.stage_id as usize;
        let waits = self.replans.as_ref()?.waiting_for.contains(&stage_id);
        (waits && matches!(stages.get(&stage_id), Some(ExecutionStage::Running(_)))).then_some(stage_id)
    }

    /// The completion of a stage made the planner plan anew.
    fn replanned(&mut self, stage_id: usize, graph: &ExecutionGraphBox) {
        let Some(replans) = &mut self.replans else { return };
        let plan = graph.physical_plan();
        replans.waiting_for = unresolved_stages(plan.as_ref());
        if let Some(revision) = replans.revision(stage_id, plan.as_ref()) {
            self.emit(EventData::JobPlanRevision(revision));
        }
    }

    fn diverged(&self, graph: &ExecutionGraphBox) -> Vec<u32> {
        self.replans.as_ref().map(|replans| replans.diverged(&graph.physical_plan())).unwrap_or_default()
    }

    fn tasks_ended(&mut self, executor_id: &str, statuses: &[TaskStatus], stages: &HashMap<usize, ExecutionStage>) {
        for status in statuses {
            let stage = stages.get(&(status.stage_id as usize));
            let slots = stage.map(|stage| self.stages.slots_of(status.stage_id as usize, stage));
            if let Some(ended) = task_end(executor_id, status, stage, slots.as_deref()) {
                self.emit(EventData::TaskEnd(ended));
            }
        }
    }
}

impl ReplanObserver {
    fn stage_runs(&mut self, stage_id: usize, graph: &ExecutionGraphBox) {
        if !self.executed.contains_key(&stage_id)
            && let Some(runs) = subtree_of_stage(&graph.physical_plan(), stage_id)
        {
            self.executed.insert(stage_id, runs);
        }
    }

    /// What the replan changed; `None` if nothing, or nobody wants to know.
    fn revision(&mut self, stage_id: usize, plan: &dyn ExecutionPlan) -> Option<JobPlanRevision> {
        let last = self.last.as_mut()?;
        let now = PlanTree::of(plan);
        let changes = changes(last, &now);
        let changed = !changes.is_empty() || !last.same_plan(&now);
        *last = now;
        if !changed {
            return None;
        }
        self.revision += 1;
        Some(JobPlanRevision {
            revision: self.revision,
            trigger_stage_id: Some(stage_id as u32),
            at: now_ms(),
            plan: displayable(plan).indent(false).to_string(),
            changes,
        })
    }

    /// The stages whose part of the plan is not what they executed. A stage whose exchange is gone has no part.
    fn diverged(&self, plan: &Arc<dyn ExecutionPlan>) -> Vec<u32> {
        let differs = |(stage_id, executed): (&usize, &Arc<dyn ExecutionPlan>)| {
            let now = subtree_of_stage(plan, *stage_id)?;
            let same = PlanTree::of_stage(executed.as_ref()).same_plan(&PlanTree::of_stage(now.as_ref()));
            (!same).then_some(*stage_id as u32)
        };
        let mut diverged: Vec<u32> = self.executed.iter().filter_map(differs).collect();
        diverged.sort_unstable();
        diverged
    }
}

impl ExecutionGraphExt for TappedGraph {
    fn submitted_physical_plan(&self) -> Option<&str> {
        Some(&self.plans.submitted)
    }

    fn is_adaptive(&self) -> bool {
        self.plans.adaptive
    }

    fn replan_count(&self) -> u32 {
        self.plans.replans()
    }
}

#[deny(clippy::missing_trait_methods)]
impl ExecutionGraph for TappedGraph {
    fn job_id(&self) -> &JobId {
        self.inner.job_id()
    }

    fn job_name(&self) -> &str {
        self.inner.job_name()
    }

    fn session_id(&self) -> &str {
        self.inner.session_id()
    }

    fn scheduler_id(&self) -> Option<&str> {
        self.inner.scheduler_id()
    }

    fn session_config(&self) -> Arc<SessionConfig> {
        self.inner.session_config()
    }

    fn status(&self) -> &JobStatus {
        self.inner.status()
    }

    fn logical_plan(&self) -> Option<&str> {
        self.inner.logical_plan()
    }

    fn physical_plan(&self) -> Arc<dyn ExecutionPlan> {
        self.inner.physical_plan()
    }

    fn start_time(&self) -> u64 {
        self.inner.start_time()
    }

    fn end_time(&self) -> u64 {
        self.inner.end_time()
    }

    fn completed_stages(&self) -> usize {
        self.inner.completed_stages()
    }

    fn is_successful(&self) -> bool {
        self.inner.is_successful()
    }

    fn revive(&mut self) -> bool {
        self.watch(|inner| inner.revive())
    }

    /// An adaptive job's batch is taken stage by stage: then each replan has one stage that caused it.
    fn update_task_status(
        &mut self,
        executor: &ExecutorMetadata,
        task_statuses: Vec<TaskStatus>,
        max_task_failures: usize,
        max_stage_failures: usize,
    ) -> Result<Vec<QueryStageSchedulerEvent>> {
        if !self.plans.adaptive {
            return self.update(executor, task_statuses, max_task_failures, max_stage_failures);
        }
        let mut events = Vec::new();
        let mut failure = None;
        for statuses in by_stage(task_statuses) {
            match self.update(executor, statuses, max_task_failures, max_stage_failures) {
                // A job fails once, however many of its stages do.
                Ok(more) => {
                    let failed = events.iter().any(is_failure);
                    events.extend(more.into_iter().filter(|event| !(failed && is_failure(event))));
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            // What other stages have to say must not be lost for it: one of the events may end the job.
            Some(error) if events.is_empty() => Err(error),
            Some(error) => {
                tracing::error!(%error, "a task status could not be applied");
                Ok(events)
            }
            None => Ok(events),
        }
    }

    fn running_stages(&self) -> Vec<usize> {
        self.inner.running_stages()
    }

    fn running_tasks(&self) -> Vec<RunningTaskInfo> {
        self.inner.running_tasks()
    }

    fn available_tasks(&self) -> usize {
        self.inner.available_tasks()
    }

    /// Starts resolved stages when nothing else can run. The stage is borrowed from the graph, so the comparison has
    /// to come first: when there is a resolved stage, the call is made twice, and the second finds what the first did.
    fn fetch_running_stage(&mut self, black_list: &[usize]) -> Option<&mut RunningStage> {
        let may_start_stages =
            || self.inner.stages().values().any(|stage| matches!(stage, ExecutionStage::Resolved(_)));
        if self.observer.is_some() && may_start_stages() {
            self.watch(|inner| {
                inner.fetch_running_stage(black_list);
            });
        }
        self.inner.fetch_running_stage(black_list)
    }

    fn update_status(&mut self, status: JobStatus) {
        self.inner.update_status(status);
    }

    fn output_locations(&self) -> Vec<PartitionLocation> {
        self.inner.output_locations()
    }

    fn reset_stages_on_lost_executor(&mut self, executor_id: &str) -> Result<(HashSet<usize>, Vec<RunningTaskInfo>)> {
        self.watch(|inner| inner.reset_stages_on_lost_executor(executor_id))
    }

    fn resolve_stage(&mut self, stage_id: usize) -> Result<bool> {
        self.watch(|inner| inner.resolve_stage(stage_id))
    }

    fn succeed_stage(&mut self, stage_id: usize) -> bool {
        self.watch(|inner| inner.succeed_stage(stage_id))
    }

    fn fail_stage(&mut self, stage_id: usize, err_msg: String) -> bool {
        self.watch(|inner| inner.fail_stage(stage_id, err_msg))
    }

    fn rollback_running_stage(
        &mut self,
        stage_id: usize,
        failure_reasons: HashSet<String>,
    ) -> Result<Vec<RunningTaskInfo>> {
        self.watch(|inner| inner.rollback_running_stage(stage_id, failure_reasons))
    }

    fn rollback_resolved_stage(&mut self, stage_id: usize) -> Result<bool> {
        self.watch(|inner| inner.rollback_resolved_stage(stage_id))
    }

    fn rerun_successful_stage(&mut self, stage_id: usize) -> bool {
        self.watch(|inner| inner.rerun_successful_stage(stage_id))
    }

    fn fail_job(&mut self, error: String) {
        self.inner.fail_job(error);
    }

    fn abort_running(&mut self, error: String) -> Vec<RunningTaskInfo> {
        let tasks = self.watch(|inner| inner.abort_running(error));
        if let Some(observer) = &self.observer {
            self.plans.set_diverged(observer.diverged(&self.inner));
            observer.shared.jobs.set_aborted(&observer.job_id);
        }
        tasks
    }

    fn succeed_job(&mut self) -> Result<()> {
        self.inner.succeed_job()
    }

    fn stages(&self) -> &HashMap<usize, ExecutionStage> {
        self.inner.stages()
    }

    fn intermediate_stage_ids(&self) -> Vec<u32> {
        self.inner.intermediate_stage_ids()
    }

    fn task_vcores(&self, stage_id: usize, task_id: usize) -> Option<u32> {
        self.inner.task_vcores(stage_id, task_id)
    }

    fn stage_count(&self) -> usize {
        self.inner.stage_count()
    }

    fn cloned(&self) -> ExecutionGraphBox {
        Box::new(Self::snapshot(self.inner.cloned(), Arc::new(self.plans.snapshot())))
    }
}

/// The scheduler serves this text as `stage_plan`.
impl fmt::Debug for TappedGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        graph_text::write(&self.inner, f)
    }
}

fn is_failure(event: &QueryStageSchedulerEvent) -> bool {
    matches!(event, QueryStageSchedulerEvent::JobRunningFailed { .. })
}

/// The statuses of each stage, stages in the order in which they come.
fn by_stage(statuses: Vec<TaskStatus>) -> Vec<Vec<TaskStatus>> {
    let mut stages: Vec<Vec<TaskStatus>> = Vec::new();
    for status in statuses {
        match stages.iter_mut().find(|stage| stage.first().is_some_and(|first| first.stage_id == status.stage_id)) {
            Some(stage) => stage.push(status),
            None => stages.push(vec![status]),
        }
    }
    stages
}
