//! The records on disk, frozen: what version 1 looks like, and what stock Ballista makes of it.
//!
//! `golden/v1.jsonl` is never made anew. When a record drifts from it, the new form is written beside it and the test
//! fails: a field that was added belongs into a new golden file, a field that changed breaks logs that exist.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::PathBuf;

use ballista_event_sink::conformance::{sample_cluster, sample_job, sample_plan_revision};
use ballista_event_sink::event::{
    DecodeError, Event, EventData, EventKind, PlanChange, Record, StageStatus, TaskStatus,
};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn line(event: &Event) -> String {
    let mut line = Vec::new();
    event.write_json_line(&mut line).unwrap();
    String::from_utf8(line).unwrap()
}

/// One of each kind.
fn samples() -> String {
    let mut events = sample_cluster();
    events.remove(1);
    events.extend(sample_job("golden", 1));
    let sampled = |kind: &EventKind| events.iter().any(|event| event.kind() == *kind);
    assert!(EventKind::ALL.iter().all(|kind| sampled(kind) || *kind == EventKind::JobPlanRevision));
    events.iter().map(|event| line(event)).collect()
}

#[test]
fn records_are_as_they_were() {
    compare_with_golden("v1.jsonl", &samples());
    compare_with_golden("v1-plan-revision.jsonl", &line(&sample_plan_revision("golden")));
}

fn compare_with_golden(name: &str, written: &str) {
    let path = golden(name);
    let frozen = std::fs::read_to_string(&path).unwrap_or_default();
    if written != frozen {
        let new = path.with_extension("jsonl.new");
        std::fs::write(&new, written).unwrap();
        panic!("records are not as in {}; see {}", path.display(), new.display());
    }
}

#[test]
fn what_was_written_is_read_back() {
    let frozen = ["v1.jsonl", "v1-plan-revision.jsonl"].map(|name| std::fs::read_to_string(golden(name)).unwrap());
    for text in frozen.iter().flat_map(|text| text.lines()) {
        let event = Event::from_json_line(text).unwrap().unwrap();
        assert_eq!(line(&event).trim_end(), text);
    }
}

/// The log that ships with stock's own tests of its schema.
#[test]
fn stock_records_are_read() {
    let text = r#"{"ev":"StageStart","version":1,"data":{"stage_id":1,"partitions":4}}"#;
    let event = Event::from_json_line(text).unwrap().unwrap();
    assert_eq!(event.job_id(), None);
    let EventData::StageStart(start) = event.data() else { panic!("{event:?}") };
    assert_eq!((start.stage_id, start.partitions, start.attempt, start.plan.as_deref()), (1, 4, 0, None));

    let text = r#"{"ev":"TaskEnd","version":1,"data":{"stage_id":1,"task_id":2,"executor_id":"e","status":{"Failed":{"reason":"IoError","error":"disk"}},"launch_time":1,"start_exec_time":2,"end_exec_time":3,"metrics":{"input_rows":1,"output_rows":2,"elapsed_compute_nanos":3}}}"#;
    let event = Event::from_json_line(text).unwrap().unwrap();
    let EventData::TaskEnd(task) = event.data() else { panic!("{event:?}") };
    assert_eq!(task.status, TaskStatus::Failed { reason: "IoError".into(), error: "disk".into() });
    assert!(task.partitions.is_empty());
}

/// Stock's own types read ours: additions are skipped, nothing is missing.
#[test]
fn stock_reads_our_records() {
    use ballista_history::event as stock;

    for text in samples().lines() {
        let record: stock::LogRecord = serde_json::from_str(text).unwrap();
        assert!(record.version <= stock::SCHEMA_VERSION);
        match record.ev.as_str() {
            stock::kind::JOB_START => drop(record.decode::<stock::JobStart>().unwrap()),
            stock::kind::STAGE_START => drop(record.decode::<stock::StageStart>().unwrap()),
            stock::kind::STAGE_END => drop(record.decode::<stock::StageEnd>().unwrap()),
            stock::kind::TASK_END => drop(record.decode::<stock::TaskEnd>().unwrap()),
            stock::kind::JOB_END => drop(record.decode::<stock::JobEnd>().unwrap()),
            ours => assert!(["JobQueued", "ExecutorRegistered", "ExecutorRemoved"].contains(&ours), "{ours}"),
        }
    }
}

#[test]
fn unknown_kinds_fields_and_statuses_are_no_errors() {
    let unknown = r#"{"ev":"AnEventKindFromTheFuture","version":9,"data":{"x":[1]}}"#;
    assert!(Event::from_json_line(unknown).unwrap().is_none());
    let text = r#"{"ev":"StageEnd","version":1,"trace":"t","data":{"stage_id":1,"status":"Skipped","why":{}}}"#;
    let event = Event::from_json_line(text).unwrap().unwrap();
    let EventData::StageEnd(end) = event.data() else { panic!("{event:?}") };
    assert_eq!(end.status, StageStatus::Other("Skipped".into()));
}

#[test]
fn an_unknown_change_of_a_plan_is_no_error() {
    let text = r#"{"ev":"JobPlanRevision","version":1,"data":{"revision":1,"trigger_stage_id":0,"at":1,"plan":"","changes":[{"change":"from_the_future","x":1}]}}"#;
    let event = Event::from_json_line(text).unwrap().unwrap();
    let EventData::JobPlanRevision(revision) = event.data() else { panic!("{event:?}") };
    assert_eq!(revision.changes, [PlanChange::Unknown]);
}

#[test]
fn what_is_wrong_with_a_line_is_told_apart() {
    let error = |text: &str| Event::from_json_line(text).unwrap_err();
    assert!(matches!(error(r#"{"ev":"JobSta"#), DecodeError::Malformed(_)));
    assert!(matches!(error(r#"{"version":1,"data":{}}"#), DecodeError::Malformed(_)));
    let payload = error(r#"{"ev":"StageEnd","version":1,"data":{"stage_id":"one"}}"#);
    assert!(matches!(payload, DecodeError::Payload { kind: EventKind::StageEnd, .. }), "{payload}");
    let new = error(r#"{"ev":"StageEnd","version":2,"data":{}}"#);
    assert!(matches!(new, DecodeError::TooNew { found: 2, .. }));
    assert_eq!(
        new.to_string(),
        "StageEnd record has schema version 2, this reader knows up to 1; read it with a newer version"
    );
}

#[test]
fn an_envelope_is_read_without_its_payload() {
    let record = Record::parse(r#"{"ev":"JobEnd","version":7,"job_id":"j","data":[1, 2]}"#).unwrap();
    assert_eq!((record.ev.as_str(), record.version, record.job_id.as_deref()), ("JobEnd", 7, Some("j")));
    assert_eq!(record.data.get(), "[1, 2]");
}
