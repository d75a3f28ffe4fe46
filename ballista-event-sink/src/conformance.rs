//! What every sink must do, as functions that authors of sinks run on theirs.
//!
//! ```
//! # use std::sync::Arc;
//! # use ballista_event_sink::{Event, EventSink, SinkError, async_trait};
//! # #[derive(Debug, Clone)] struct MySink;
//! # #[async_trait] impl EventSink for MySink {
//! #     async fn write(&mut self, _: &[Arc<Event>]) -> Result<(), SinkError> { Ok(()) }
//! #     async fn flush(&mut self) -> Result<(), SinkError> { Ok(()) }
//! #     async fn close(&mut self) -> Result<(), SinkError> { Ok(()) }
//! # }
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use ballista_event_sink::conformance;
//!
//! conformance::check(|| Box::new(MySink)).await;
//! # }
//! ```
//!
//! A sink whose destination can be read back also runs [`check_delivery`]. All of them panic when a sink does not
//! conform, with a text that says which rule it broke; each rule is part of the contract of [`EventSink`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::bus::EventBus;
use crate::event::{
    DroppedEvents, Event, EventData, EventKind, ExecutorRegistered, ExecutorRemoved, JobEnd, JobEndStatus, JobIndex,
    JobPlanRevision, JobQueued, JobStart, PlanChange, RawJson, StageEnd, StageStart, StageStatus, TaskEnd,
    TaskEndMetrics, TaskStatus,
};
use crate::sink::{EventSink, SinkError};

/// How long a sink may take for a few hundred events before it is said to hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs every check that needs no access to the sink's destination. `make` configures a sink as its users do; it is
/// called several times, and may hand out clones.
///
/// # Panics
///
/// When the sink does not conform.
pub async fn check(make: impl Fn() -> Box<dyn EventSink>) {
    takes_every_kind(make()).await;
    flushes_and_closes_with_nothing_to_do(make()).await;
    takes_events_of_many_jobs_in_one_batch(make()).await;
    takes_strings_of_any_content(make()).await;
    clones_write_side_by_side(make()).await;
    serves_a_bus(make()).await;
}

/// Checks that what is written can be read back: all of it, in order, and once.
///
/// `read` returns the JSON lines that the destination holds of a job, in order. A sink may add lines of its own.
///
/// # Panics
///
/// When the sink does not conform.
pub async fn check_delivery(make: impl Fn() -> Box<dyn EventSink>, read: impl Fn(&str) -> Vec<String>) {
    let jobs: Vec<_> = (0..8).map(|_| sample_job(&fresh_job_id(), 20)).collect();
    let (bus, guard) = match EventBus::builder().sink("checked", make()).build() {
        Ok(built) => built,
        Err(error) => panic!("{error}"),
    };
    emit_interleaved(&bus, &jobs);
    let report = guard.shutdown(PATIENCE).await;
    assert!(report.is_clean(), "a sink takes over every event it is handed: {report}");
    for job in &jobs {
        let job_id = job[0].job_id().unwrap_or_default();
        let mut stored = read(job_id).into_iter();
        for event in job {
            let line = line(event);
            assert!(
                stored.by_ref().any(|stored| stored == line),
                "job {job_id}: this event is missing, or out of order: {line}"
            );
        }
        let again: Vec<_> = stored.filter(|stored| job.iter().any(|event| *stored == line(event))).collect();
        assert!(again.is_empty(), "job {job_id}: events were written again: {again:?}");
    }
}

async fn takes_every_kind(mut sink: Box<dyn EventSink>) {
    let mut events = sample_cluster();
    let job_id = fresh_job_id();
    events.extend(sample_job(&job_id, 1));
    // Behind the JobStart.
    events.insert(events.len() - 4, sample_plan_revision(&job_id));
    for kind in EventKind::ALL {
        assert!(events.iter().any(|event| event.kind() == kind), "no sample of {kind}");
    }
    for event in &events {
        expect(sink.write(std::slice::from_ref(event)).await, &format!("a sink takes a {} event", event.kind()));
    }
    finish(sink).await;
}

async fn flushes_and_closes_with_nothing_to_do(mut sink: Box<dyn EventSink>) {
    expect(sink.flush().await, "a sink that has written nothing can be flushed");
    expect(sink.flush().await, "a sink can be flushed again");
    expect(sink.close().await, "a sink that has written nothing can be closed");
}

async fn takes_events_of_many_jobs_in_one_batch(mut sink: Box<dyn EventSink>) {
    let jobs: Vec<_> = (0..200).map(|_| sample_job(&fresh_job_id(), 2)).collect();
    let length = jobs.iter().map(Vec::len).max().unwrap_or_default();
    let batch: Vec<_> = (0..length).flat_map(|i| jobs.iter().filter_map(move |job| job.get(i).cloned())).collect();
    expect(sink.write(&batch).await, "a sink takes a batch of events of many jobs");
    finish(sink).await;
}

async fn takes_strings_of_any_content(mut sink: Box<dyn EventSink>) {
    let job_id = fresh_job_id();
    let error = format!("line\nbreak \u{2028} \u{0} \" \\ ' é 漢 \u{1F600} {}", "x".repeat(1 << 20));
    let task =
        TaskEnd { status: TaskStatus::Failed { reason: "ExecutionError".to_owned(), error }, ..sample_task(1, 0) };
    let event = Arc::new(Event::of_job(job_id, EventData::TaskEnd(task)));
    expect(sink.write(&[event]).await, "a sink takes a long string of any characters");
    finish(sink).await;
}

async fn clones_write_side_by_side(sink: Box<dyn EventSink>) {
    let (mut one, mut other) = (sink.clone(), sink.clone());
    let (job, other_job) = (sample_job(&fresh_job_id(), 2), sample_job(&fresh_job_id(), 2));
    for (event, other_event) in job.iter().zip(&other_job) {
        expect(one.write(std::slice::from_ref(event)).await, "a clone writes");
        expect(other.write(std::slice::from_ref(other_event)).await, "a clone writes while another one does");
    }
    finish(one).await;
    finish(other).await;
    drop(sink);
}

async fn serves_a_bus(sink: Box<dyn EventSink>) {
    let (bus, guard) = match EventBus::builder().sink("checked", sink).build() {
        Ok(built) => built,
        Err(error) => panic!("{error}"),
    };
    let jobs: Vec<_> = (0..50).map(|_| sample_job(&fresh_job_id(), 20)).collect();
    emit_interleaved(&bus, &jobs);
    if let Err(error) = bus.flush(PATIENCE).await {
        panic!("a sink can be flushed through the bus: {error}");
    }
    let report = guard.shutdown(PATIENCE).await;
    assert!(report.is_clean(), "a sink takes over every event and closes: {report}");
}

fn emit_interleaved(bus: &EventBus, jobs: &[Vec<Arc<Event>>]) {
    for event in sample_cluster() {
        bus.emit(Arc::unwrap_or_clone(event));
    }
    let length = jobs.iter().map(Vec::len).max().unwrap_or_default();
    for i in 0..length {
        for event in jobs.iter().filter_map(|job| job.get(i)) {
            bus.emit(Event::clone(event));
        }
    }
}

async fn finish(mut sink: Box<dyn EventSink>) {
    expect(sink.flush().await, "a sink can be flushed");
    expect(sink.close().await, "a sink can be closed");
}

fn expect(outcome: Result<(), SinkError>, rule: &str) {
    if let Err(error) = outcome {
        panic!("{rule}, but it said: {error}");
    }
}

fn line(event: &Event) -> String {
    let mut line = Vec::new();
    match event.write_json_line(&mut line) {
        Ok(()) => String::from_utf8_lossy(&line).trim_end().to_owned(),
        Err(error) => panic!("{error}"),
    }
}

/// A job id that no other call in this process returned.
pub fn fresh_job_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("conformance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Executors that join and leave.
pub fn sample_cluster() -> Vec<Arc<Event>> {
    let joins = ExecutorRegistered {
        executor_id: "executor-1".to_owned(),
        host: "10.0.0.7".to_owned(),
        port: 50051,
        grpc_port: 50052,
        vcores: 8,
        at: 1_764_565_200_000,
        scheduler_id: Some("scheduler-1".to_owned()),
        os: Some("Linux 6.1".to_owned()),
        physical_cores: 4,
    };
    let short = ExecutorRegistered { executor_id: "executor-2".to_owned(), ..joins.clone() };
    let leaves = ExecutorRemoved { executor_id: "executor-2".to_owned(), at: 1_764_565_200_500 };
    [EventData::ExecutorRegistered(joins), EventData::ExecutorRegistered(short), EventData::ExecutorRemoved(leaves)]
        .map(|data| Arc::new(Event::of_cluster(data)))
        .into()
}

/// A successful job from JobQueued to JobEnd, with one stage of `tasks` tasks that ran on `executor-1` of
/// [`sample_cluster`].
pub fn sample_job(job_id: &str, tasks: u32) -> Vec<Arc<Event>> {
    let stage_start = StageStart {
        stage_id: 1,
        partitions: tasks,
        at: 1_764_565_201_030,
        attempt: 0,
        plan: Some("ShuffleWriterExec: partitioning: None\n  DataSourceExec\n".to_owned()),
    };
    let stage_end = StageEnd { stage_id: 1, status: StageStatus::Successful, at: 1_764_565_201_400, attempt: 0 };
    let mut life = vec![
        EventData::JobQueued(JobQueued {
            job_id: job_id.to_owned(),
            job_name: "sample".to_owned(),
            queued_at: 1_764_565_201_000,
            scheduler_id: Some("scheduler-1".to_owned()),
        }),
        EventData::JobStart(JobStart {
            job_id: job_id.to_owned(),
            job_name: "sample".to_owned(),
            queued_at: 1_764_565_201_000,
            submitted_at: 1_764_565_201_025,
            scheduler_id: Some("scheduler-1".to_owned()),
            logical_plan: Some("TableScan: t".to_owned()),
            physical_plan: Some("DataSourceExec\n".to_owned()),
            adaptive: false,
        }),
        EventData::StageStart(stage_start),
    ];
    life.extend((0..tasks).map(|task_id| EventData::TaskEnd(sample_task(1, task_id))));
    life.push(EventData::StageEnd(stage_end));
    life.push(EventData::JobEnd(Box::new(sample_end(job_id))));
    life.into_iter().map(|data| Arc::new(Event::of_job(job_id, data))).collect()
}

/// A plan revision as an adaptive job has them; [`sample_job`] is a static one.
pub fn sample_plan_revision(job_id: &str) -> Arc<Event> {
    let broadcast = PlanChange::JoinResolved {
        operator: "HashJoinExec".to_owned(),
        mode: Some("CollectLeft".to_owned()),
        join_type_before: "Inner".to_owned(),
        join_type_after: "Inner".to_owned(),
        swapped: false,
    };
    let revision = JobPlanRevision {
        revision: 1,
        trigger_stage_id: Some(0),
        at: 1_764_565_201_200,
        plan: "AdaptiveDatafusionExec: is_final=false, plan_id=3, stage_id=pending, stage_resolved=false\n".to_owned(),
        changes: vec![broadcast, PlanChange::Coalesced { stage_id: Some(0), partitions: 1, of: 4 }],
    };
    Arc::new(Event::of_job(job_id, EventData::JobPlanRevision(revision)))
}

fn sample_task(stage_id: u32, task_id: u32) -> TaskEnd {
    TaskEnd {
        stage_id,
        task_id,
        executor_id: "executor-1".to_owned(),
        status: TaskStatus::Successful,
        launch_time: 1_764_565_201_040,
        start_exec_time: 1_764_565_201_045,
        end_exec_time: 1_764_565_201_300 + u64::from(task_id),
        metrics: TaskEndMetrics { input_rows: 1000, output_rows: 10, elapsed_compute_nanos: 123_456_789 },
        attempt: 0,
        partitions: vec![task_id],
    }
}

fn sample_end(job_id: &str) -> JobEnd {
    let raw = |text: String| match RawJson::from_string(text) {
        Ok(json) => json,
        Err(error) => panic!("{error}"),
    };
    let index = JobIndex {
        job_id: job_id.to_owned(),
        job_name: "sample".to_owned(),
        status: "Completed".to_owned(),
        job_status: "Completed. Produced 1 partition containing 10 rows. Elapsed time: 375 ms.".to_owned(),
        start_time: 1_764_565_201_025,
        end_time: 1_764_565_201_400,
        num_stages: 1,
        completed_stages: 1,
        percent_complete: 100,
    };
    let config = BTreeMap::from([("datafusion.execution.target_partitions", "4")]);
    JobEnd {
        status: JobEndStatus::Succeeded,
        queued_at: 1_764_565_201_000,
        started_at: 1_764_565_201_025,
        completed_at: 1_764_565_201_400,
        job: raw(format!(r#"{{"job_id":"{job_id}","job_name":"sample","status":"Completed"}}"#)),
        stages: raw(r#"{"stages":[{"stage_id":"1","stage_status":"Successful"}]}"#.to_owned()),
        config: match RawJson::of(&config) {
            Ok(config) => config,
            Err(error) => panic!("{error}"),
        },
        index,
        dot: "digraph G {\n}\n".to_owned(),
        dropped_events: DroppedEvents::new(),
    }
}
