//! What a task status says about a task that ended.

use ballista_core::serde::protobuf::failed_task::FailedReason;
use ballista_core::serde::protobuf::operator_metric::Metric;
use ballista_core::serde::protobuf::{FailedTask, OperatorMetricsSet, TaskStatus as StatusUpdate, task_status};
use ballista_scheduler::state::execution_stage::ExecutionStage;
use datafusion::physical_plan::ExecutionPlan;

use crate::event::{TaskEnd, TaskEndMetrics, TaskStatus};

/// The names DataFusion gives the two metrics that are summed.
const OUTPUT_ROWS: &str = "output_rows";
const ELAPSED_COMPUTE: &str = "elapsed_compute";

/// A task's end, or `None` for a status that is not terminal.
pub(super) fn task_end(
    executor_id: &str,
    update: &StatusUpdate,
    stage: Option<&ExecutionStage>,
    slots: Option<&MetricSlots>,
) -> Option<TaskEnd> {
    let status = match update.status.as_ref()? {
        task_status::Status::Running(_) => return None,
        task_status::Status::Successful(_) => TaskStatus::Successful,
        task_status::Status::Failed(failed) => {
            TaskStatus::Failed { reason: reason(failed).to_owned(), error: failed.error.clone() }
        }
    };
    Some(TaskEnd {
        stage_id: update.stage_id,
        task_id: update.task_id,
        executor_id: executor_id.to_owned(),
        status,
        launch_time: update.launch_time,
        start_exec_time: update.start_exec_time,
        end_exec_time: update.end_exec_time,
        metrics: metrics(&update.metrics, slots),
        attempt: update.stage_attempt_num,
        partitions: stage.map(|stage| partitions(stage, update)).unwrap_or_default(),
    })
}

fn reason(failed: &FailedTask) -> &'static str {
    match &failed.failed_reason {
        Some(FailedReason::ExecutionError(_)) => "ExecutionError",
        Some(FailedReason::FetchPartitionError(_)) => "FetchPartitionError",
        Some(FailedReason::IoError(_)) => "IoError",
        Some(FailedReason::ExecutorLost(_)) => "ExecutorLost",
        Some(FailedReason::ResultLost(_)) => "ResultLost",
        Some(FailedReason::TaskKilled(_)) => "TaskKilled",
        None => "Failed",
    }
}

/// The partitions a task was given, as long as its stage knows: a new attempt may count its tasks anew.
fn partitions(stage: &ExecutionStage, update: &StatusUpdate) -> Vec<u32> {
    let attempt = match stage {
        ExecutionStage::Running(stage) => stage.stage_attempt_num,
        ExecutionStage::Successful(stage) => stage.stage_attempt_num,
        ExecutionStage::Failed(stage) => stage.stage_attempt_num,
        ExecutionStage::UnResolved(_) | ExecutionStage::Resolved(_) => return Vec::new(),
    };
    if attempt != update.stage_attempt_num as usize {
        return Vec::new();
    }
    stage
        .task_infos()
        .and_then(|tasks| tasks.get(update.task_id as usize))
        .map(|task| task.global_input_partition_ids.iter().map(|&partition| partition as u32).collect())
        .unwrap_or_default()
}

/// Where the operators of a stage's plan have their place in the metrics of its tasks: executors send one set for each
/// operator that has metrics, in pre-order.
#[derive(Debug, Clone, Default)]
pub(super) struct MetricSlots {
    /// The plan's root, which writes the stage's output.
    root: Option<usize>,
    /// The plan's leaves, which read its input.
    leaves: Vec<usize>,
    len: usize,
}

impl MetricSlots {
    pub(super) fn of(plan: &dyn ExecutionPlan) -> Self {
        let mut slots = Self::default();
        slots.add(plan, true);
        slots
    }

    fn add(&mut self, plan: &dyn ExecutionPlan, is_root: bool) {
        let children = plan.children();
        if plan.metrics().is_some() {
            if is_root {
                self.root = Some(self.len);
            }
            if children.is_empty() {
                self.leaves.push(self.len);
            }
            self.len += 1;
        }
        for child in children {
            self.add(child.as_ref(), false);
        }
    }
}

/// Sums as the stock event log does, without converting the metrics first: a set that holds an empty metric is left
/// out, and row counts are 0 when the sets are not as many as the plan has places for.
fn metrics(sets: &[OperatorMetricsSet], slots: Option<&MetricSlots>) -> TaskEndMetrics {
    let whole = || sets.iter().filter(|set| set.metrics.iter().all(|metric| metric.metric.is_some()));
    let elapsed_compute_nanos = whole().map(elapsed_compute).sum();
    let (mut input_rows, mut output_rows) = (0, 0);
    if let Some(slots) = slots
        && whole().count() == slots.len
    {
        for (slot, set) in whole().enumerate() {
            if slots.leaves.contains(&slot) {
                input_rows += output_rows_of(set);
            }
            if slots.root == Some(slot) {
                output_rows = output_rows_of(set);
            }
        }
    }
    TaskEndMetrics { input_rows, output_rows, elapsed_compute_nanos }
}

fn output_rows_of(set: &OperatorMetricsSet) -> u64 {
    let rows = set.metrics.iter().filter_map(|metric| match metric.metric.as_ref()? {
        Metric::OutputRows(rows) => Some(*rows),
        Metric::Count(count) if count.name == OUTPUT_ROWS => Some(count.value),
        _ => None,
    });
    rows.sum()
}

fn elapsed_compute(set: &OperatorMetricsSet) -> u64 {
    let times = set.metrics.iter().filter_map(|metric| match metric.metric.as_ref()? {
        // DataFusion's timer counts at least a nanosecond for each time added to it.
        Metric::ElapseTime(nanos) => Some((*nanos).max(1)),
        Metric::Time(time) if time.name == ELAPSED_COMPUTE => Some(time.value.max(1)),
        _ => None,
    });
    times.sum()
}
