//! Plans as plain trees, taken at one moment, so that they can be compared later.
//!
//! Nodes of an adaptive plan share state across rewrites (stage ids, whether a stage is resolved, coalesced
//! partitions), and their types are private to the scheduler. So a plan is read by the names of its operators and the
//! line that each prints, when it is looked at.

mod changes;
mod tree;

pub(crate) use changes::changes;
pub(crate) use tree::{PlanTree, subtree_of_stage, unresolved_stages};
