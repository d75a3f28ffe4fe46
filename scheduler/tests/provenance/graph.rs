//! Taking a batch of task statuses stage by stage does to a real graph what taking it whole does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ballista_core::config::TaskSchedulingPolicy::PullStaged;
use ballista_core::object_store::session_config_with_s3_support;
use ballista_core::serde::protobuf::{
    ExecutionError, FailedTask, IoError, ShuffleWritePartition, SuccessfulTask, TaskStatus, failed_task, task_status,
};
use ballista_core::serde::scheduler::{ExecutorMetadata, ExecutorOperatingSystemSpecification, ExecutorSpecification};
use ballista_event_tpch::QUERIES;
use ballista_scheduler::scheduler_server::event::QueryStageSchedulerEvent;
use ballista_scheduler::state::execution_graph::{ExecutionGraphBox, create_task_info};
use ballista_scheduler::state::execution_stage::ExecutionStage;
use datafusion::physical_plan::{ExecutionPlanProperties, displayable};
use datafusion::prelude::SessionContext;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::harness::{Cluster, Setup, run, session_state, tables};
use crate::oracle;

fn executor() -> ExecutorMetadata {
    ExecutorMetadata {
        id: "executor".to_owned(),
        host: "localhost".to_owned(),
        port: 1,
        grpc_port: 2,
        specification: ExecutorSpecification::default(),
        os_info: ExecutorOperatingSystemSpecification::default(),
    }
}

/// The stock graphs of some queries, as the scheduler has just planned them. No executor is there to run them.
async fn graphs(cluster: &Cluster) -> Vec<ExecutionGraphBox> {
    let mut graphs = Vec::new();
    for query in [2, 4, 7, 17, 20] {
        let config = session_config_with_s3_support().with_target_partitions(2);
        let session = Arc::new(SessionContext::new_with_state(session_state(config).unwrap()));
        for statement in tables().create_statements() {
            run(&session, &statement).await.unwrap();
        }
        let plan = session.state().create_logical_plan(QUERIES[query].sql).await.unwrap();
        let mut events = cluster.scheduler.job_state_events().await.unwrap();
        let job_id = cluster.scheduler.submit_job("graph", session, &plan, None).await.unwrap();
        // Nobody polls, so the graph in the job's first event is found in the cache a moment later.
        futures::StreamExt::next(&mut events).await.unwrap();
        let graph = loop {
            match cluster.scheduler.state.task_manager.get_running_job_cache().get(&job_id) {
                Some(job) => break job.execution_graph.read().await.cloned(),
                None => tokio::task::yield_now().await,
            }
        };
        graphs.push(graph);
    }
    graphs
}

/// Hands every pending partition of every running stage to an executor, one task each.
fn bind(graph: &mut ExecutionGraphBox) {
    let mut full = Vec::new();
    while let Some(stage) = graph.fetch_running_stage(&full) {
        for partition in stage.pending.next_slice(usize::MAX) {
            let mut info = create_task_info("executor".to_owned(), stage.task_infos.len());
            info.global_input_partition_ids = vec![partition];
            stage.task_infos.push(info);
        }
        full.push(stage.stage_id);
    }
}

/// The tasks that run, in order.
fn running(graph: &ExecutionGraphBox) -> Vec<(usize, usize, usize, u32)> {
    let mut tasks = Vec::new();
    for (id, stage) in graph.stages() {
        if let ExecutionStage::Running(stage) = stage {
            let outputs = stage.plan.output_partitioning().partition_count() as u32;
            for task in &stage.task_infos {
                if matches!(task.task_status, task_status::Status::Running(_)) {
                    tasks.push((*id, stage.stage_attempt_num, task.task_id, outputs));
                }
            }
        }
    }
    tasks.sort_unstable();
    tasks
}

/// How a task ends, by a die: mostly well, with few rows, with none, or by a failure that is tried again, or not.
fn status(job_id: &str, (stage, attempt, task, outputs): (usize, usize, usize, u32), die: u8) -> TaskStatus {
    let failed = |reason, retryable| {
        task_status::Status::Failed(FailedTask {
            error: "die".to_owned(),
            retryable,
            count_to_failures: retryable,
            failed_reason: Some(reason),
        })
    };
    let status = match die {
        0 => failed(failed_task::FailedReason::ExecutionError(ExecutionError {}), false),
        1..=3 => failed(failed_task::FailedReason::IoError(IoError {}), true),
        _ => task_status::Status::Successful(SuccessfulTask {
            executor_id: "executor".to_owned(),
            partitions: (0..outputs)
                .map(|partition_id| ShuffleWritePartition {
                    partition_id: partition_id.into(),
                    num_rows: if die.is_multiple_of(3) { 0 } else { u64::from(die) },
                    num_batches: 1,
                    num_bytes: u64::from(die) * 100,
                    ..ShuffleWritePartition::default()
                })
                .collect(),
            ..SuccessfulTask::default()
        }),
    };
    TaskStatus {
        task_id: task as u32,
        job_id: job_id.to_owned(),
        stage_id: stage as u32,
        stage_attempt_num: attempt as u32,
        status: Some(status),
        ..TaskStatus::default()
    }
}

/// What two graphs are compared by. Clones share the state of their exchanges, so each is driven on its own, from a
/// graph that was planned anew.
#[derive(Debug, PartialEq)]
struct Picture {
    status: String,
    stages: BTreeMap<usize, String>,
    plan: String,
    events: Vec<String>,
}

fn picture(graph: &ExecutionGraphBox, events: Vec<String>) -> Picture {
    let stages = graph.stages().iter().map(|(id, stage)| {
        let plan = displayable(stage.plan()).indent(false).to_string();
        let tasks = stage.task_infos().map(|tasks| {
            let kind = |status: &task_status::Status| match status {
                task_status::Status::Running(_) => "running",
                task_status::Status::Failed(_) => "failed",
                task_status::Status::Successful(_) => "successful",
            };
            tasks.iter().map(|task| kind(&task.task_status)).collect::<Vec<_>>()
        });
        (*id, format!("{} {tasks:?}\n{plan}", stage.variant_name()))
    });
    Picture {
        status: match &graph.status().status {
            // Of several stages that fail at once, which one is named depends on the order of a hash table.
            Some(ballista_core::serde::protobuf::job_status::Status::Failed(_)) => "failed".to_owned(),
            status => format!("{:?}", status.as_ref().map(std::mem::discriminant)),
        },
        stages: stages.collect(),
        plan: displayable(graph.physical_plan().as_ref()).indent(false).to_string(),
        events,
    }
}

fn name(event: &QueryStageSchedulerEvent) -> &'static str {
    match event {
        QueryStageSchedulerEvent::JobFinished { .. } => "finished",
        QueryStageSchedulerEvent::JobRunningFailed { .. } => "failed",
        QueryStageSchedulerEvent::JobUpdated(_) => "updated",
        QueryStageSchedulerEvent::CancelTasks(_) => "cancel",
        _ => "other",
    }
}

static BATCHES_OF_SEVERAL_STAGES: AtomicUsize = AtomicUsize::new(0);

/// Drives a graph with the dice until they are used up or the job has ended.
fn drive(mut graph: ExecutionGraphBox, dice: &[u8], whole: bool) -> Picture {
    let job_id = graph.job_id().to_string();
    let executor = executor();
    let mut dice = dice.iter();
    let mut told = Vec::new();
    'job: loop {
        bind(&mut graph);
        let tasks = running(&graph);
        if tasks.is_empty() {
            break;
        }
        let mut batch = Vec::new();
        for task in tasks {
            let Some(die) = dice.next() else { break 'job };
            // Some tasks take longer.
            if die % 7 != 6 {
                batch.push(status(&job_id, task, die % 64));
            }
        }
        let batches = if whole {
            let stages: BTreeSet<u32> = batch.iter().map(|status| status.stage_id).collect();
            BATCHES_OF_SEVERAL_STAGES.fetch_add(usize::from(stages.len() > 1), Ordering::Relaxed);
            vec![batch]
        } else {
            let mut stages: BTreeMap<u32, Vec<TaskStatus>> = BTreeMap::new();
            for status in batch {
                stages.entry(status.stage_id).or_default().push(status);
            }
            stages.into_values().collect()
        };
        let mut names = Vec::new();
        for batch in batches {
            names.extend(graph.update_task_status(&executor, batch, 4, 4).unwrap().iter().map(name));
        }
        names.sort_unstable();
        // As the decorator does: a job fails once, however many of its stages do.
        names.dedup_by(|one, other| one == other && *one == "failed");
        told.push(names.join(" "));
        if names.contains(&"failed") || names.contains(&"finished") {
            break;
        }
    }
    picture(&graph, told)
}

#[tokio::test(flavor = "multi_thread")]
async fn stage_by_stage_is_as_whole() {
    let _turn = oracle::turn().await;
    let mut setup = Setup::new(PullStaged);
    setup.executors = 0;
    let cluster = setup.start().await;
    // The same dice each time: what runs in CI is what was seen to pass.
    let config = Config { cases: 8, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let handle = tokio::runtime::Handle::current();
    let dice = proptest::collection::vec(any::<u8>(), 50..400);
    let cluster = &cluster;
    tokio::task::block_in_place(|| {
        let result = runner.run(&dice, |dice| {
            let pairs = handle
                .block_on(async { graphs(cluster).await.into_iter().zip(graphs(cluster).await).collect::<Vec<_>>() });
            for (whole, split) in pairs {
                let (whole, split) = (drive(whole, &dice, true), drive(split, &dice, false));
                let ids = |picture: &Picture| picture.stages.keys().copied().collect::<Vec<_>>();
                prop_assert_eq!(ids(&whole), ids(&split));
                prop_assert_eq!(&whole, &split);
            }
            Ok(())
        });
        result.unwrap();
    });
    assert!(BATCHES_OF_SEVERAL_STAGES.load(Ordering::Relaxed) > 20, "there was something to split");
}
