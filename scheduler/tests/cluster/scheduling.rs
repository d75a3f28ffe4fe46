//! The tap is in place whatever binds the tasks, and whoever builds the scheduler.

use std::collections::HashMap;
use std::sync::Arc;

use ballista_core::JobId;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::serde::protobuf::AvailableVcores;
use ballista_core::serde::scheduler::TaskKey;
use ballista_event_sink::event::JobEndStatus;
use ballista_event_sink::tap::Tap;
use ballista_event_sink::{EventBus, EventData, async_trait};
use ballista_scheduler::cluster::{BallistaCluster, BoundTask, DistributionPolicy};
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process;
use ballista_scheduler::state::execution_graph::{TaskDescription, create_task_info};
use ballista_scheduler::state::task_manager::JobInfoCache;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tokio::net::TcpListener;

use crate::harness::{PATIENCE, Recorder, Setup, run, session_state, start_executor};
use crate::oracle::stages_enclose_tasks;

/// Gives all that is left of a stage to the executor with the most room, as one task.
#[derive(Debug)]
struct OneTaskAStage;

#[async_trait]
impl DistributionPolicy for OneTaskAStage {
    async fn bind_tasks(
        &self,
        mut budgets: Vec<&mut AvailableVcores>,
        running_jobs: Arc<HashMap<JobId, JobInfoCache>>,
    ) -> datafusion::error::Result<Vec<BoundTask>> {
        let mut bound = Vec::new();
        for (job_id, job) in running_jobs.iter() {
            let mut graph = job.execution_graph.write().await;
            let (session_id, session_config) = (graph.session_id().to_owned(), graph.session_config());
            while let Some(budget) = budgets.iter_mut().max_by_key(|budget| budget.vcores).filter(|b| b.vcores > 0) {
                let Some(stage) = graph.fetch_running_stage(&[]) else { break };
                let partitions = stage.pending.next_slice(usize::MAX);
                let task_id = stage.task_infos.len();
                let mut info = create_task_info(budget.executor_id.clone(), task_id);
                info.global_input_partition_ids.clone_from(&partitions);
                info.vcores_consumed = 1;
                stage.task_infos.push(info);
                budget.vcores -= 1;
                let task = TaskDescription {
                    session_id: session_id.clone(),
                    key: TaskKey { job_id: job_id.clone(), stage_id: stage.stage_id, task_id },
                    stage_attempt_num: stage.stage_attempt_num,
                    task_attempt: 0,
                    global_input_partition_ids: partitions,
                    vcores_consumed: 1,
                    plan: Arc::clone(&stage.plan),
                    session_config: Arc::clone(&session_config),
                };
                bound.push((budget.executor_id.clone(), task));
            }
        }
        Ok(bound)
    }

    fn name(&self) -> &str {
        "one-task-a-stage"
    }
}

const SQL: &str = "select o_orderpriority, count(*) from orders join lineitem on l_orderkey = o_orderkey group by 1";

#[tokio::test(flavor = "multi_thread")]
async fn any_distribution_policy() {
    let custom: Arc<dyn DistributionPolicy> = Arc::new(OneTaskAStage);
    for scheduling in [TaskSchedulingPolicy::PullStaged, TaskSchedulingPolicy::PushStaged] {
        for distribution in [TaskDistributionPolicy::RoundRobin, TaskDistributionPolicy::Custom(Arc::clone(&custom))] {
            let is_custom = matches!(distribution, TaskDistributionPolicy::Custom(_));
            let mut setup = Setup::new(scheduling);
            setup.executors = 2;
            setup.config.task_distribution = distribution;
            let cluster = setup.start().await;
            let client = cluster.client(&[("datafusion.execution.target_partitions", "4")]).await;
            let (rows, job_id) = cluster.query(&client, "distributed", SQL).await;
            assert_eq!(rows, Ok(5));
            let events = cluster.recorder.of_job(&job_id);
            stages_enclose_tasks(&events, "distributed");
            let mut tasks: HashMap<u32, Vec<usize>> = HashMap::new();
            for event in &events {
                if let EventData::TaskEnd(task) = event.data() {
                    tasks.entry(task.stage_id).or_default().push(task.partitions.len());
                }
            }
            assert!(tasks.len() >= 2);
            if is_custom {
                assert!(tasks.values().all(|partitions| partitions.len() == 1), "{tasks:?}");
            }
            assert!(cluster.shutdown().await.is_clean());
        }
    }
}

/// Someone who builds the server: a stock scheduler, the decorated cluster, and the tap bound to it. No metrics
/// collector, no routes of ours.
#[tokio::test(flavor = "multi_thread")]
async fn a_stock_server_with_the_tap_bound_by_hand() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let config = Arc::new(SchedulerConfig {
        bind_port: address.port(),
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        override_config_producer: Some(Arc::new(ballista_core::object_store::session_config_with_s3_support)),
        override_session_builder: Some(Arc::new(session_state)),
        ..SchedulerConfig::default()
    });
    let recorder = Recorder::default();
    let (bus, guard) = EventBus::builder().sink("recorder", recorder.clone()).build().unwrap();
    let tap = Tap::new(bus);
    let cluster = tap.wrap_cluster(BallistaCluster::new_from_config(&config).await.unwrap());
    let scheduler =
        scheduler_process::create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, config).await.unwrap();
    tap.bind(&scheduler);
    tokio::spawn(scheduler_process::start_grpc_service_with_listener(listener, scheduler));
    start_executor(TaskSchedulingPolicy::PullStaged, address, 4).await;

    let client = crate::harness::client(address, &[("ballista.job.name", "by hand")]).await;
    assert_eq!(run(&client, SQL).await, Ok(5));
    let job_id = recorder.job_ended("by hand").await;
    let events = recorder.of_job(&job_id);
    stages_enclose_tasks(&events, "by hand");
    let EventData::JobEnd(end) = events.last().unwrap().data() else { panic!("{events:?}") };
    assert_eq!(end.status, JobEndStatus::Succeeded);
    assert!(end.job.get().contains("physical_plan"));
    assert!(guard.shutdown(PATIENCE).await.is_clean());
}

/// With no sink configured nothing is wrapped: what comes out is what went in.
#[tokio::test]
async fn nothing_is_wrapped_for_nobody() {
    let tap = Tap::new(EventBus::disabled());
    let cluster = BallistaCluster::new_from_config(&SchedulerConfig::default()).await.unwrap();
    let (state, jobs) = (cluster.cluster_state(), cluster.job_state());
    let wrapped = tap.wrap_cluster(cluster);
    assert!(Arc::ptr_eq(&state, &wrapped.cluster_state()));
    assert!(Arc::ptr_eq(&jobs, &wrapped.job_state()));
    let metrics = ballista_scheduler::metrics::default_metrics_collector().unwrap();
    assert!(Arc::ptr_eq(&metrics, &tap.wrap_metrics_collector(Arc::clone(&metrics))));
}
