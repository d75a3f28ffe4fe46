//! The stock event log switched on beside ours, in the same scheduler, on the same jobs.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_event_sink::{Event, EventData};
use ballista_event_tpch::QUERIES;
use ballista_history::event::{JobEnd, JobStart, LogRecord};
use serde_json::Value;

use crate::harness::{Cluster, Setup};

/// What the stock log of a job holds.
fn stock_log(directory: &Path, job_id: &str) -> Vec<LogRecord> {
    let text = std::fs::read_to_string(directory.join(format!("{job_id}.eventlog"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn value(data: &impl serde::Serialize) -> Value {
    serde_json::to_value(data).unwrap()
}

/// Runs all 22 queries and returns job ids by query.
async fn run_all(cluster: &Cluster, adaptive: bool) -> BTreeMap<&'static str, String> {
    let client = cluster
        .client(&[
            ("ballista.planner.adaptive.enabled", if adaptive { "true" } else { "false" }),
            ("datafusion.execution.target_partitions", "4"),
        ])
        .await;
    let mut jobs = BTreeMap::new();
    for query in QUERIES {
        let name = format!("{}-{adaptive}", query.name);
        let (rows, job_id) = cluster.query(&client, &name, query.sql).await;
        rows.unwrap_or_else(|error| panic!("{name}: {error}"));
        jobs.insert(query.name, job_id);
    }
    jobs
}

fn compare(ours: &[Arc<Event>], stock: &[LogRecord], name: &str) {
    let start = ours
        .iter()
        .find_map(|event| match event.data() {
            EventData::JobStart(start) => Some(value(start)),
            _ => None,
        })
        .unwrap_or_else(|| panic!("{name}: no JobStart"));
    let stock_start: JobStart = stock.iter().find(|record| record.ev == "JobStart").unwrap().decode().unwrap();
    for (field, expected) in value(&stock_start).as_object().unwrap() {
        assert_eq!(&start[field], expected, "{name}: JobStart.{field}");
    }

    let mut tasks: HashMap<(u64, u64), Vec<Value>> = HashMap::new();
    for event in ours {
        if let EventData::TaskEnd(task) = event.data() {
            let key = (task.stage_id.into(), task.task_id.into());
            tasks.entry(key).or_default().push(value(task));
        }
    }
    let stock_tasks: Vec<Value> =
        stock.iter().filter(|record| record.ev == "TaskEnd").map(|record| record.decode().unwrap()).collect();
    assert!(!stock_tasks.is_empty(), "{name}: stock saw no task");
    assert_eq!(tasks.values().map(Vec::len).sum::<usize>(), stock_tasks.len(), "{name}: number of tasks");
    for expected in &stock_tasks {
        let key = (expected["stage_id"].as_u64().unwrap(), expected["task_id"].as_u64().unwrap());
        let same = |task: &Value| expected.as_object().unwrap().iter().all(|(field, value)| &task[field] == value);
        let candidates = tasks.get(&key).map(Vec::as_slice).unwrap_or_default();
        assert!(candidates.iter().any(same), "{name}: {expected} not among {candidates:#?}");
        assert!(candidates.iter().all(|task| !task["partitions"].as_array().unwrap().is_empty()), "{name}");
    }

    let EventData::JobEnd(end) = ours.last().unwrap().data() else { panic!("{name}: JobEnd is not last") };
    let stock_end: JobEnd = stock.iter().find(|record| record.ev == "JobEnd").unwrap().decode().unwrap();
    compare_jobs(&serde_json::from_str(end.job.get()).unwrap(), &value(&stock_end.job), &start, name);
    assert_eq!(end.stages.get(), stock_end.stages.get(), "{name}: stages");
    assert_eq!(end.config.get(), value(&stock_end.config).to_string(), "{name}: config");
    assert_eq!(end.dot, stock_end.dot, "{name}: dot");
    assert_eq!(value(&end.index), value(&stock_end.index), "{name}: index");
    assert_eq!(value(&end.status), value(&stock_end.status), "{name}: status");
    assert_eq!((end.queued_at, end.started_at), (stock_end.queued_at, stock_end.started_at), "{name}: times");
    assert!(end.dropped_events.is_empty(), "{name}");
}

/// Stock's `physical_plan` is that of the moment; ours is the one as submitted, beside the final one. Everything else
/// of stock's is there, in stock's order, and what is added stands behind it.
fn compare_jobs(ours: &Value, stock: &Value, start: &Value, name: &str) {
    let adaptive = start["adaptive"].as_bool().unwrap();
    for (field, expected) in stock.as_object().unwrap() {
        let field = if adaptive && field == "physical_plan" { "final_physical_plan" } else { field };
        assert_eq!(&ours[field], expected, "{name}: job.{field}");
    }
    assert_eq!(ours["physical_plan"], start["physical_plan"], "{name}");
    assert_eq!(ours["adaptive"], start["adaptive"], "{name}");
    assert_eq!(ours.get("final_physical_plan").is_some(), adaptive, "{name}");
}

/// Every StageStart has its StageEnd, and every TaskEnd lies between them.
pub fn stages_enclose_tasks(events: &[Arc<Event>], name: &str) {
    let mut open = std::collections::HashSet::new();
    let mut seen = 0;
    for event in events {
        match event.data() {
            EventData::StageStart(start) => {
                assert!(start.plan.as_deref().is_some_and(|plan| !plan.is_empty()), "{name}");
                assert!(open.insert((start.stage_id, start.attempt)), "{name}: stage starts twice");
                seen += 1;
            }
            EventData::TaskEnd(task) => {
                assert!(open.contains(&(task.stage_id, task.attempt)), "{name}: task outside its stage: {task:?}");
            }
            EventData::StageEnd(end) => {
                assert!(open.remove(&(end.stage_id, end.attempt)), "{name}: stage ends that did not start: {end:?}");
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "{name}: stages without end: {open:?}");
    assert!(seen > 0, "{name}: no stages");
}

async fn agrees_with_stock(policy: TaskSchedulingPolicy) {
    let stock = tempfile::tempdir().unwrap();
    let cluster = Setup::new(policy).stock_log(stock.path()).start().await;
    for adaptive in [true, false] {
        for (query, job_id) in run_all(&cluster, adaptive).await {
            let name = format!("{query} ({policy:?}, adaptive {adaptive})");
            let ours = cluster.recorder.of_job(&job_id);
            assert_eq!(cluster.tap.plan_provenance(&job_id).unwrap().adaptive, adaptive, "{name}");
            compare(&ours, &stock_log(stock.path(), &job_id), &name);
            stages_enclose_tasks(&ours, &name);
        }
    }
    assert!(cluster.shutdown().await.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn all_queries_under_pull_scheduling() {
    agrees_with_stock(TaskSchedulingPolicy::PullStaged).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_queries_under_push_scheduling() {
    agrees_with_stock(TaskSchedulingPolicy::PushStaged).await;
}
