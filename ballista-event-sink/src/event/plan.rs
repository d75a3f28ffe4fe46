//! Plan revisions: what the adaptive planner made of a job's plan, replan by replan.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A job's plan as it was submitted, or as a replan left it. Recorded only on request, and only for adaptive jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobPlanRevision {
    /// Number of the revision: 0 is the plan as submitted, others count the replans that changed it.
    pub revision: u32,
    /// The stage whose completion made the planner plan anew; absent for revision 0.
    pub trigger_stage_id: Option<u32>,
    /// When (ms).
    pub at: u64,
    /// The plan as text.
    pub plan: String,
    /// What is different from the revision before; empty for revision 0.
    pub changes: Vec<PlanChange>,
}

/// One thing that a replan did, found by comparing the plans before and after.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlanChange {
    /// A join that had waited for the sizes of its inputs was decided.
    JoinResolved {
        /// The operator that was chosen, such as `HashJoinExec`.
        operator: String,
        /// How a hash join gets its build side: `CollectLeft` (broadcast) or `Partitioned`. Absent for other joins.
        mode: Option<String>,
        /// The type of join that was asked for, such as `Inner`.
        join_type_before: String,
        /// The type of join that was chosen: another one when the sides of an outer join were swapped.
        join_type_after: String,
        /// Whether its sides were swapped: what was the right input is the left one now.
        swapped: bool,
    },
    /// A join that had been decided was decided anew, or its sides were swapped.
    JoinChanged {
        /// The operator before.
        operator_before: String,
        /// The operator after.
        operator_after: String,
        /// The hash join's mode before, if it was one.
        mode_before: Option<String>,
        /// The hash join's mode after, if it is one.
        mode_after: Option<String>,
        /// The type of join before.
        join_type_before: String,
        /// The type of join after.
        join_type_after: String,
        /// Whether its sides were swapped: what was the right input is the left one now.
        swapped: bool,
    },
    /// A part of the plan yields no rows, and was cut off.
    Pruned {
        /// The operator at the top of the part.
        operator: String,
        /// What stands in its place, such as `EmptyExec` or `PlaceholderRowExec`.
        replaced_by: String,
    },
    /// Partitions of an exchange are read together, since they turned out to be small.
    Coalesced {
        /// The stage that writes to the exchange, once it has one.
        stage_id: Option<u32>,
        /// Number of partitions that are read.
        partitions: u32,
        /// Number of partitions that were written.
        of: u32,
    },
    /// An exchange was put in: one more stage.
    ExchangeAdded {
        /// The planner's own number of the exchange.
        plan_id: u32,
        /// How it distributes rows.
        partitioning: String,
    },
    /// An exchange was taken out.
    ExchangeDropped {
        /// The planner's own number of the exchange.
        plan_id: u32,
        /// The stage that wrote to it, if it had one.
        stage_id: Option<u32>,
    },
    /// An exchange sends all of its rows to each reader from now on.
    BroadcastChosen {
        /// The planner's own number of the exchange.
        plan_id: u32,
        /// The stage that writes to it, once it has one.
        stage_id: Option<u32>,
    },
    /// An exchange that was to be broadcast is not any more.
    BroadcastDemoted {
        /// The planner's own number of the exchange.
        plan_id: u32,
        /// The stage that writes to it, once it has one.
        stage_id: Option<u32>,
    },
    /// Anything else: an operator as it was, and what it is now. One is absent when an operator came or went.
    Other {
        /// The operator's line in the plan before.
        before: Option<String>,
        /// The operator's line in the plan after.
        after: Option<String>,
    },
    /// A change that this version doesn't know.
    #[serde(other)]
    Unknown,
}

/// One line, for people.
impl fmt::Display for PlanChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_mode = |operator: &str, mode: &Option<String>| match mode {
            Some(mode) => format!("{operator} {mode}"),
            None => operator.to_owned(),
        };
        let stage =
            |stage_id: &Option<u32>| stage_id.map_or_else(|| "no stage yet".to_owned(), |id| format!("stage {id}"));
        match self {
            Self::JoinResolved { operator, mode, join_type_before, join_type_after, swapped } => {
                write!(f, "join decided: {}, {join_type_after}", with_mode(operator, mode))?;
                if join_type_before != join_type_after {
                    write!(f, " (was {join_type_before})")?;
                }
                f.write_str(if *swapped { ", sides swapped" } else { "" })
            }
            Self::JoinChanged {
                operator_before,
                operator_after,
                mode_before,
                mode_after,
                join_type_before,
                join_type_after,
                swapped,
            } => write!(
                f,
                "join changed: {}, {join_type_before} became {}, {join_type_after}{}",
                with_mode(operator_before, mode_before),
                with_mode(operator_after, mode_after),
                if *swapped { ", sides swapped" } else { "" }
            ),
            Self::Pruned { operator, replaced_by } => {
                write!(f, "cut off as empty: everything from {operator} down, {replaced_by} instead")
            }
            Self::Coalesced { stage_id, partitions, of } => {
                write!(f, "partitions coalesced: {partitions} of {of} ({})", stage(stage_id))
            }
            Self::ExchangeAdded { plan_id, partitioning } => {
                write!(f, "exchange {plan_id} added: {partitioning}")
            }
            Self::ExchangeDropped { plan_id, stage_id } => {
                write!(f, "exchange {plan_id} dropped ({})", stage(stage_id))
            }
            Self::BroadcastChosen { plan_id, stage_id } => {
                write!(f, "exchange {plan_id} is broadcast ({})", stage(stage_id))
            }
            Self::BroadcastDemoted { plan_id, stage_id } => {
                write!(f, "exchange {plan_id} is broadcast no more ({})", stage(stage_id))
            }
            Self::Other { before: Some(before), after: Some(after) } => write!(f, "{before} became {after}"),
            Self::Other { before: Some(before), after: None } => write!(f, "gone: {before}"),
            Self::Other { before: None, after: Some(after) } => write!(f, "new: {after}"),
            Self::Other { before: None, after: None } | Self::Unknown => f.write_str("a change of no known kind"),
        }
    }
}
