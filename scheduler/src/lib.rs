//! The stock Ballista scheduler with event sinks: the library behind the `ballista-scheduler` binary.
//!
//! The binary takes every flag of the stock one, and `--event-sink` with its companions. An embedder who wants all of
//! that and a sink of their own registers the sink and calls [`main`]:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use ballista_event_sinks::{NullSink, SinkRegistry};
//!
//! fn main() -> ExitCode {
//!     let mut registry = SinkRegistry::builtin();
//!     let name = "mine".parse().expect("a valid name");
//!     registry.register(name, "my own sink", |_| Ok(Box::new(NullSink::new()))).expect("a new name");
//!     ballista_event_scheduler::main(registry)
//! }
//! ```

pub mod cli;
pub mod executor;
mod logging;
mod run;

pub use run::main;
