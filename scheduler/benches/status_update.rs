//! What the tap costs a task status update: the same batches through the same graph, bare, watched with a null sink,
//! and watched with plan revisions on.
//!
//! `cargo bench -p ballista-event-scheduler --bench status_update`. One run prints all three beside each other; only
//! the ratios mean something on another machine.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::object_store::{session_config_with_s3_support, session_state_with_s3_support};
use ballista_core::serde::protobuf::{
    OperatorMetric, OperatorMetricsSet, ShuffleWritePartition, SuccessfulTask, TaskStatus, operator_metric::Metric,
    task_status,
};
use ballista_core::serde::scheduler::{ExecutorMetadata, ExecutorOperatingSystemSpecification, ExecutorSpecification};
use ballista_event_sink::bus::EventBus;
use ballista_event_sink::server::create_scheduler;
use ballista_event_sink::tap::Tap;
use ballista_event_sinks::NullSink;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::state::execution_graph::{ExecutionGraphBox, create_task_info};
use ballista_scheduler::state::execution_stage::ExecutionStage;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::datasource::MemTable;
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::prelude::SessionContext;
use tokio::sync::RwLock;

/// Rounds whose median is shown.
const ROUNDS: usize = 7;

#[derive(Clone, Copy, PartialEq)]
enum Watched {
    Bare,
    Null,
    Revisions,
}

/// A query of one stage for each aggregation, and one for their union.
fn query(aggregations: usize) -> String {
    let one = |i: usize| format!("select v % 7 as k, count(*) as c from t where v > {i} group by v % 7");
    (0..aggregations).map(one).collect::<Vec<_>>().join(" union all ")
}

/// The graph of the query in the cache of a scheduler that has no executor.
async fn graph(watched: Watched, sql: &str, partitions: usize) -> Arc<RwLock<ExecutionGraphBox>> {
    let config = SchedulerConfig {
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        override_config_producer: Some(Arc::new(session_config_with_s3_support)),
        override_session_builder: Some(Arc::new(session_state_with_s3_support)),
        ..SchedulerConfig::default()
    };
    let bus = match watched {
        Watched::Bare => EventBus::disabled(),
        _ => {
            let builder = EventBus::builder().queue_capacity(1 << 20).plan_revisions(watched == Watched::Revisions);
            let (bus, guard) = builder.sink("null", NullSink::new()).build().unwrap();
            // The sink works to the end of the process.
            std::mem::forget(guard);
            bus
        }
    };
    let config = Arc::new(config);
    let cluster = BallistaCluster::new_from_config(&config).await.unwrap();
    let scheduler = create_scheduler(cluster, config, &Tap::new(bus)).await.unwrap();
    let session = session_config_with_s3_support().with_target_partitions(partitions);
    let session = Arc::new(SessionContext::new_with_state(session_state_with_s3_support(session).unwrap()));
    let rows: ArrayRef = Arc::new(Int64Array::from_iter_values(0..8));
    let batch = RecordBatch::try_from_iter([("v", rows)]).unwrap();
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]; partitions]).unwrap();
    session.register_table("t", Arc::new(table)).unwrap();
    let plan = session.state().create_logical_plan(sql).await.unwrap();
    let job_id = scheduler.submit_job("bench", session, &plan, None).await.unwrap();
    loop {
        if let Some(job) = scheduler.state.task_manager.get_running_job_cache().get(&job_id) {
            let graph = Arc::clone(&job.execution_graph);
            let decorated = format!("{:?}", graph.read().await).starts_with("Job ");
            if decorated || watched == Watched::Bare {
                return graph;
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Hands every pending partition to an executor, one task each, and makes the statuses with which they succeed.
fn bind(graph: &mut ExecutionGraphBox) -> Vec<TaskStatus> {
    let mut full = Vec::new();
    while let Some(stage) = graph.fetch_running_stage(&full) {
        for partition in stage.pending.next_slice(usize::MAX) {
            let mut info = create_task_info("executor".to_owned(), stage.task_infos.len());
            info.global_input_partition_ids = vec![partition];
            stage.task_infos.push(info);
        }
        full.push(stage.stage_id);
    }
    let job_id = graph.job_id().to_string();
    let mut statuses = Vec::new();
    for (stage_id, stage) in graph.stages() {
        let ExecutionStage::Running(stage) = stage else { continue };
        let outputs = stage.plan.output_partitioning().partition_count() as u64;
        let running =
            stage.task_infos.iter().filter(|task| matches!(task.task_status, task_status::Status::Running(_)));
        statuses.extend(running.map(|task| {
            TaskStatus {
                task_id: task.task_id as u32,
                job_id: job_id.clone(),
                stage_id: *stage_id as u32,
                stage_attempt_num: stage.stage_attempt_num as u32,
                metrics: metrics(4),
                status: Some(task_status::Status::Successful(SuccessfulTask {
                    executor_id: "executor".to_owned(),
                    partitions: (0..outputs.min(4))
                        .map(|partition_id| ShuffleWritePartition {
                            partition_id,
                            num_rows: 7,
                            num_batches: 1,
                            num_bytes: 1000,
                            ..ShuffleWritePartition::default()
                        })
                        .collect(),
                    ..SuccessfulTask::default()
                })),
                ..TaskStatus::default()
            }
        }));
    }
    statuses.sort_by_key(|status| (status.stage_id, status.task_id));
    statuses
}

fn metrics(operators: usize) -> Vec<OperatorMetricsSet> {
    let metric = |metric| OperatorMetric { metric: Some(metric), partition: Some(0) };
    let set = OperatorMetricsSet { metrics: vec![metric(Metric::OutputRows(7)), metric(Metric::ElapseTime(1000))] };
    vec![set; operators]
}

/// The size of what was driven, and the time that its updates took.
struct Run {
    stages: usize,
    tasks: usize,
    updates: usize,
    time: Duration,
}

async fn drive(watched: Watched, sql: &str, partitions: usize, batch: usize) -> Run {
    let graph = graph(watched, sql, partitions).await;
    let mut graph = graph.write().await;
    let executor = ExecutorMetadata {
        id: "executor".to_owned(),
        host: "localhost".to_owned(),
        port: 1,
        grpc_port: 2,
        specification: ExecutorSpecification::default(),
        os_info: ExecutorOperatingSystemSpecification::default(),
    };
    let mut run = Run { stages: 0, tasks: 0, updates: 0, time: Duration::ZERO };
    loop {
        let statuses = bind(&mut graph);
        if statuses.is_empty() {
            break;
        }
        run.tasks += statuses.len();
        for statuses in statuses.chunks(batch) {
            let statuses = statuses.to_vec();
            let start = Instant::now();
            graph.update_task_status(&executor, statuses, 4, 4).unwrap();
            run.time += start.elapsed();
            run.updates += 1;
        }
    }
    run.stages = graph.stage_count();
    run
}

#[tokio::main]
async fn main() {
    println!("median of {ROUNDS} rounds, microseconds an update; ratio to bare\n");
    println!("{:>7} {:>7} {:>6} {:>10} {:>18} {:>18}", "stages", "tasks", "batch", "bare", "null sink", "revisions");
    for (aggregations, partitions) in [(2, 16), (100, 4), (100, 100)] {
        let sql = query(aggregations);
        for batch in [1, 16, 256] {
            // In turn, so that a slow moment of the machine is everyone's.
            let mut runs = [Vec::new(), Vec::new(), Vec::new()];
            let mut size = (0, 0);
            for _ in 0..ROUNDS {
                for (runs, watched) in runs.iter_mut().zip([Watched::Bare, Watched::Null, Watched::Revisions]) {
                    let run = drive(watched, &sql, partitions, batch).await;
                    size = (run.stages, run.tasks);
                    runs.push(run.time.as_secs_f64() * 1e6 / run.updates as f64);
                }
            }
            let [bare, null, revisions] = runs.map(|mut runs| {
                runs.sort_by(f64::total_cmp);
                runs[ROUNDS / 2]
            });
            println!(
                "{:>7} {:>7} {batch:>6} {bare:>10.1} {null:>10.1} ({:.2}) {revisions:>10.1} ({:.2})",
                size.0,
                size.1,
                null / bare,
                revisions / bare
            );
        }
    }
}
