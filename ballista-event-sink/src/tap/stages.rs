//! Which stages run, and what changed since the last look.

use std::borrow::Cow;
use std::collections::HashMap;

use ballista_scheduler::state::execution_stage::{ExecutionStage, RunningStage};
use datafusion::physical_plan::displayable;

use super::now_ms;
use super::tasks::MetricSlots;
use crate::event::{EventData, StageEnd, StageStart, StageStatus};

/// The attempts that were told as started and not as ended.
#[derive(Default)]
pub(super) struct StageTracker {
    running: HashMap<usize, Attempt>,
}

struct Attempt {
    number: usize,
    slots: MetricSlots,
}

impl StageTracker {
    /// What changed since the last call: attempts that ended, then attempts that started, each by stage id.
    pub(super) fn compare(&mut self, stages: &HashMap<usize, ExecutionStage>) -> Vec<EventData> {
        let mut changes = Vec::new();
        let mut ended: Vec<usize> = self
            .running
            .iter()
            .filter(|(id, attempt)| running(stages.get(id)).is_none_or(|now| now.stage_attempt_num != attempt.number))
            .map(|(id, _)| *id)
            .collect();
        ended.sort_unstable();
        for stage_id in ended {
            if let Some(attempt) = self.running.remove(&stage_id) {
                changes.push(EventData::StageEnd(StageEnd {
                    stage_id: stage_id as u32,
                    status: outcome(stages.get(&stage_id), attempt.number),
                    at: now_ms(),
                    attempt: attempt.number as u32,
                }));
            }
        }
        let mut started: Vec<&RunningStage> = stages
            .values()
            .filter_map(|stage| running(Some(stage)))
            .filter(|stage| !self.running.contains_key(&stage.stage_id))
            .collect();
        started.sort_unstable_by_key(|stage| stage.stage_id);
        for stage in started {
            let attempt = Attempt { number: stage.stage_attempt_num, slots: MetricSlots::of(stage.plan.as_ref()) };
            self.running.insert(stage.stage_id, attempt);
            changes.push(EventData::StageStart(StageStart {
                stage_id: stage.stage_id as u32,
                partitions: stage.partitions as u32,
                at: stage.stage_running_time as u64,
                attempt: stage.stage_attempt_num as u32,
                plan: Some(displayable(stage.plan.as_ref()).indent(false).to_string()),
            }));
        }
        changes
    }

    /// Where the stage's operators have their place in a task's metrics. Known for running stages, looked up for the
    /// late task of a stage that runs no more.
    pub(super) fn slots_of(&self, stage_id: usize, stage: &ExecutionStage) -> Cow<'_, MetricSlots> {
        match self.running.get(&stage_id) {
            Some(attempt) if running(Some(stage)).is_some() => Cow::Borrowed(&attempt.slots),
            _ => Cow::Owned(MetricSlots::of(stage.plan())),
        }
    }
}

/// The start and the end of each stage that was aborted in a graph that nobody watched: the job ended before any of its
/// tasks was bound.
pub(super) fn aborted_unseen(stages: &HashMap<usize, ExecutionStage>, started_at: u64) -> Vec<EventData> {
    let mut failed: Vec<_> = stages
        .values()
        .filter_map(|stage| match stage {
            ExecutionStage::Failed(stage) => Some(stage),
            _ => None,
        })
        .collect();
    failed.sort_unstable_by_key(|stage| stage.stage_id);
    let starts = failed.iter().map(|stage| {
        EventData::StageStart(StageStart {
            stage_id: stage.stage_id as u32,
            partitions: stage.partitions as u32,
            at: started_at,
            attempt: stage.stage_attempt_num as u32,
            plan: Some(displayable(stage.plan.as_ref()).indent(false).to_string()),
        })
    });
    let ends = failed.iter().map(|stage| {
        EventData::StageEnd(StageEnd {
            stage_id: stage.stage_id as u32,
            status: StageStatus::Failed,
            at: now_ms(),
            attempt: stage.stage_attempt_num as u32,
        })
    });
    starts.chain(ends).collect()
}

fn running(stage: Option<&ExecutionStage>) -> Option<&RunningStage> {
    match stage {
        Some(ExecutionStage::Running(stage)) => Some(stage),
        _ => None,
    }
}

/// How an attempt ended, by what the stage is now.
fn outcome(stage: Option<&ExecutionStage>, attempt: usize) -> StageStatus {
    match stage {
        Some(ExecutionStage::Successful(stage)) if stage.stage_attempt_num == attempt => StageStatus::Successful,
        Some(ExecutionStage::Failed(_)) => StageStatus::Failed,
        // Unresolved, resolved, running another attempt, or gone.
        _ => StageStatus::RolledBack,
    }
}
