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
use ballista_core::serde::protobuf::{JobStatus, TaskStatus};
use ballista_core::serde::scheduler::{ExecutorMetadata, PartitionLocation};
use ballista_scheduler::scheduler_server::event::QueryStageSchedulerEvent;
use ballista_scheduler::state::execution_graph::{ExecutionGraph, ExecutionGraphBox, RunningTaskInfo};
use ballista_scheduler::state::execution_stage::{ExecutionStage, RunningStage};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;

use super::Shared;
use super::stages::StageTracker;
use super::tasks::task_end;
use crate::event::{Event, EventData};

/// A job's graph, watched.
pub(super) struct TappedGraph {
    inner: ExecutionGraphBox,
    /// `None` in clones: a snapshot is read, and nothing happens in it.
    observer: Option<Observer>,
}

struct Observer {
    job_id: Arc<str>,
    shared: Arc<Shared>,
    stages: StageTracker,
    /// The job's JobStart is known to be out.
    started: bool,
}

impl TappedGraph {
    /// Watches `inner`, whose first stages run already.
    pub(super) fn observing(inner: ExecutionGraphBox, job_id: Arc<str>, shared: Arc<Shared>) -> Self {
        let started = shared.jobs.is_started(&job_id);
        let mut observer = Observer { job_id, shared, stages: StageTracker::default(), started };
        // Otherwise they are told with the first thing that happens, behind the JobStart.
        if started {
            observer.compare(inner.stages());
        }
        Self { inner, observer: Some(observer) }
    }

    /// Makes a call that may change stages, then tells which it changed.
    fn watch<R>(&mut self, call: impl FnOnce(&mut ExecutionGraphBox) -> R) -> R {
        let result = call(&mut self.inner);
        if let Some(observer) = &mut self.observer {
            observer.compare(self.inner.stages());
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

    fn compare(&mut self, stages: &HashMap<usize, ExecutionStage>) {
        for change in self.stages.compare(stages) {
            self.emit(change);
        }
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

    fn update_task_status(
        &mut self,
        executor: &ExecutorMetadata,
        task_statuses: Vec<TaskStatus>,
        max_task_failures: usize,
        max_stage_failures: usize,
    ) -> Result<Vec<QueryStageSchedulerEvent>> {
        if let Some(observer) = &mut self.observer {
            observer.compare(self.inner.stages());
            // Before the update: it may roll back or drop the stage whose plan tells what the metrics mean.
            observer.tasks_ended(&executor.id, &task_statuses, self.inner.stages());
        }
        self.watch(|inner| inner.update_task_status(executor, task_statuses, max_task_failures, max_stage_failures))
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
        Box::new(Self { inner: self.inner.cloned(), observer: None })
    }
}

/// The scheduler serves this text as `stage_plan`, so it is the graph's own.
impl fmt::Debug for TappedGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
