//! Plan provenance on real jobs, with the planner's own debug log as the oracle for replans.
//!
//! A binary of its own: the oracle is a logger, one for the process, so tests take turns.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used, clippy::print_stdout)]

#[path = "../cluster/gate.rs"]
mod gate;
mod graph;
#[path = "../cluster/harness.rs"]
mod harness;
mod jobs;
mod oracle;
