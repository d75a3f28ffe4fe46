//! Real schedulers and real executors, in process, on real SQL.
//!
//! One binary, since each links all of DataFusion.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod binary;
mod failures;
mod faults;
mod gate;
mod harness;
mod history;
mod oracle;
mod routes;
mod scheduling;
mod warnings;
