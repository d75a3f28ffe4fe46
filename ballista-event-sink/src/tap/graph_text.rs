//! A job's graph as text: what the REST API serves as `stage_plan`.
//!
//! The scheduler serves the `Debug` print of a graph. For static jobs that is a list of stages; for adaptive ones it is
//! a dump of every struct below, with the session's configuration, and whatever secrets that holds, inside. Here both
//! read alike, and no value of the configuration appears.

use std::collections::HashMap;
use std::fmt;

use ballista_scheduler::state::execution_graph::ExecutionGraphBox;
use ballista_scheduler::state::execution_stage::{ExecutionStage, StageOutput};
use datafusion::physical_plan::displayable;

/// Writes the graph's stages, by id.
pub(super) fn write(graph: &ExecutionGraphBox, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let stages = graph.stages();
    write!(
        f,
        "Job {}: {} stages, {} completed, {} tasks available",
        graph.job_id(),
        stages.len(),
        graph.completed_stages(),
        graph.available_tasks()
    )?;
    let mut ids: Vec<_> = stages.keys().collect();
    ids.sort_unstable();
    ids.into_iter().try_for_each(|id| stages.get(id).map_or(Ok(()), |stage| write_stage(stage, f)))
}

fn write_stage(stage: &ExecutionStage, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (id, attempt, partitions, inputs) = match stage {
        ExecutionStage::UnResolved(stage) => (stage.stage_id, stage.stage_attempt_num, None, Some(&stage.inputs)),
        ExecutionStage::Resolved(stage) => {
            (stage.stage_id, stage.stage_attempt_num, Some(stage.partitions), Some(&stage.inputs))
        }
        ExecutionStage::Running(stage) => {
            (stage.stage_id, stage.stage_attempt_num, Some(stage.partitions), Some(&stage.inputs))
        }
        ExecutionStage::Successful(stage) => {
            (stage.stage_id, stage.stage_attempt_num, Some(stage.partitions), Some(&stage.inputs))
        }
        ExecutionStage::Failed(stage) => (stage.stage_id, stage.stage_attempt_num, Some(stage.partitions), None),
    };
    write!(f, "\n\nStage {id}.{attempt} {}", stage.variant_name())?;
    if let Some(partitions) = partitions {
        write!(f, ", {partitions} partitions")?;
    }
    if let Some(inputs) = inputs.filter(|inputs| !inputs.is_empty()) {
        write!(f, ", inputs: {}", stage_ids(inputs))?;
    }
    if let ExecutionStage::Failed(stage) = stage {
        write!(f, ", error: {}", stage.error_message.trim_end())?;
    }
    let plan = displayable(stage.plan()).indent(false).to_string();
    write!(f, "\n{}", plan.trim_end())
}

fn stage_ids(inputs: &HashMap<usize, StageOutput>) -> String {
    let mut ids: Vec<_> = inputs.keys().collect();
    ids.sort_unstable();
    ids.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
