//! The conformance suite on the stdout sink, in a child process whose standard output is a pipe to this one.
//!
//! Without a test harness, which would write to standard output too.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use ballista_event_sink::conformance;
use ballista_event_sink::event::Record;
use ballista_event_sinks::StdoutSink;

const CHILD: &str = "STDOUT_SINK_CHILD";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    if std::env::var_os(CHILD).is_some() {
        conformance::check(|| Box::new(StdoutSink::new())).await;
        return ExitCode::SUCCESS;
    }
    println!("running 1 test");
    let program = std::env::current_exe().unwrap();
    let mut child = Command::new(program).env(CHILD, "1").stdout(Stdio::piped()).spawn().unwrap();
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let record = Record::parse(&line).unwrap_or_else(|e| panic!("not one JSON object: {e}: {line:.200}"));
        *kinds.entry(record.ev).or_default() += 1;
    }
    assert!(child.wait().unwrap().success());
    // Each clone that was checked wrote whole lines: as many jobs ended as were queued.
    assert_eq!(kinds["JobEnd"], kinds["JobQueued"]);
    assert!(kinds["TaskEnd"] > 1000, "{kinds:?}");
    println!(
        "test stdout_sink_conforms ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"
    );
    ExitCode::SUCCESS
}
