//! `ballista-scheduler`: the stock scheduler with event sinks.

use std::process::ExitCode;

use ballista_event_sinks::SinkRegistry;

fn main() -> ExitCode {
    ballista_event_scheduler::main(SinkRegistry::builtin())
}
