//! Jobs that do not succeed, and executors that die: the record is what the live API shows, and says `Cancelled` where
//! a user cancelled.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::object_store::session_config_with_s3_support;
use ballista_event_sink::event::{JobEnd, JobEndStatus, StageStatus, TaskStatus};
use ballista_event_sink::{Event, EventData, EventKind};
use ballista_scheduler::config::SchedulerConfig;
use datafusion::prelude::SessionContext;
use serde_json::Value;

use crate::gate;
use crate::harness::{Cluster, Mortal, Setup, kinds, run, session_state, tables};
use crate::oracle::stages_enclose_tasks;

const POLICIES: [TaskSchedulingPolicy; 2] = [TaskSchedulingPolicy::PullStaged, TaskSchedulingPolicy::PushStaged];

fn job_end(events: &[Arc<Event>]) -> &JobEnd {
    let Some(EventData::JobEnd(end)) = events.last().map(|event| event.data()) else {
        panic!("JobEnd is not last: {:?}", kinds(events))
    };
    assert_eq!(events.iter().filter(|event| event.kind() == EventKind::JobEnd).count(), 1);
    end
}

/// The live API, asked after the job ended, answers byte for byte what JobEnd holds.
async fn live_equals_stored(cluster: &Cluster, job_id: &str, end: &JobEnd) {
    for (path, stored) in
        [("", end.job.get()), ("/stages", end.stages.get()), ("/config", end.config.get()), ("/dot", &end.dot)]
    {
        let (status, live) = cluster.get(&format!("/api/job/{job_id}{path}")).await;
        assert_eq!((status, live.as_str()), (200, stored), "{path}");
    }
    let (_, jobs) = cluster.get("/api/jobs").await;
    let jobs: Vec<Value> = serde_json::from_str(&jobs).unwrap();
    let job = jobs.iter().find(|job| job["job_id"] == job_id).unwrap();
    for (field, stored) in serde_json::to_value(&end.index).unwrap().as_object().unwrap() {
        assert_eq!(&job[field], stored, "/api/jobs {field}");
    }
}

fn no_stage_runs(end: &JobEnd) {
    let stages: Value = serde_json::from_str(end.stages.get()).unwrap();
    for stage in stages["stages"].as_array().unwrap() {
        assert_ne!(stage["stage_status"], "Running", "{stages}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_task_fails() {
    for policy in POLICIES {
        let cluster = Setup::new(policy).start().await;
        for adaptive in ["true", "false"] {
            let client = cluster.client(&[("ballista.planner.adaptive.enabled", adaptive)]).await;
            let name = format!("failing-{adaptive}");
            let sql = "select l_returnflag, max(1 / (l_linenumber - l_linenumber)) from lineitem group by l_returnflag";
            let (rows, job_id) = cluster.query(&client, &name, sql).await;
            let error = rows.unwrap_err();
            assert!(error.contains("DivideByZero"), "{error}");

            let events = cluster.recorder.of_job(&job_id);
            let end = job_end(&events);
            let JobEndStatus::Failed(message) = &end.status else { panic!("{:?}", end.status) };
            assert!(message.contains("DivideByZero"), "{message}");
            assert_eq!(end.index.status, "Failed");
            assert!(end.index.job_status.starts_with("Failed: "), "{}", end.index.job_status);
            assert!(end.completed_at >= end.started_at && end.index.end_time == end.completed_at);
            no_stage_runs(end);
            live_equals_stored(&cluster, &job_id, end).await;
            stages_enclose_tasks(&events, &name);
            let failed = |event: &Arc<Event>| match event.data() {
                EventData::TaskEnd(task) => matches!(task.status, TaskStatus::Failed { .. }),
                _ => false,
            };
            assert!(events.iter().any(failed));
            let ended = |event: &Arc<Event>| match event.data() {
                EventData::StageEnd(stage) => stage.status == StageStatus::Failed,
                _ => false,
            };
            assert!(events.iter().any(ended));
        }
        assert!(cluster.shutdown().await.is_clean());
    }
}

/// Cancels while a task runs; under push scheduling the executor is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_job_that_is_cancelled() {
    for policy in POLICIES {
        let stock = tempfile::tempdir().unwrap();
        let cluster = Setup::new(policy).stock_log(stock.path()).start().await;
        let client = cluster.client(&[("ballista.job.name", "to-cancel")]).await;
        let gate = format!("cancel-{policy:?}");
        let sql = format!("select count(*) from lineitem where wait_at('{gate}', l_orderkey) > 0");
        let query = tokio::spawn(async move { run(&client, &sql).await });
        let job_id = cluster
            .recorder
            .wait_for("StageStart", |events| {
                let start = events.iter().find(|event| event.kind() == EventKind::StageStart)?;
                start.job_id().map(str::to_owned)
            })
            .await;
        cluster.scheduler.cancel_job(job_id.as_str().into()).await.unwrap();
        assert_eq!(cluster.recorder.job_ended("to-cancel").await, job_id);
        gate::open(&gate);
        query.await.unwrap().unwrap_err();

        let events = cluster.recorder.of_job(&job_id);
        let end = job_end(&events);
        assert_eq!(end.status, JobEndStatus::Cancelled);
        assert_eq!((end.index.status.as_str(), end.index.job_status.as_str()), ("Cancelled", "Cancelled"));
        assert!(end.index.end_time > 0, "stock's record has 0 here");
        no_stage_runs(end);
        live_equals_stored(&cluster, &job_id, end).await;
        stages_enclose_tasks(&events, "cancelled");

        // A second cancel finds nothing to do, and no second JobEnd.
        cluster.scheduler.cancel_job(job_id.as_str().into()).await.unwrap();
        let client = cluster.client(&[]).await;
        cluster.query(&client, "after", "select count(*) from nation").await.0.unwrap();
        job_end(&cluster.recorder.of_job(&job_id));
        assert!(cluster.shutdown().await.is_clean());
    }
}

/// No executor ever asks for work: the graph is never decorated, and yet its stages are told.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_cancelled_before_anything_ran() {
    for policy in POLICIES {
        let mut setup = Setup::new(policy);
        setup.executors = 0;
        let cluster = setup.start().await;
        let client = cluster.client(&[("ballista.job.name", "idle")]).await;
        let query = tokio::spawn(async move { run(&client, "select count(*) from lineitem").await });
        let job_id = cluster
            .recorder
            .wait_for("JobStart", |events| {
                let start = events.iter().find(|event| event.kind() == EventKind::JobStart)?;
                start.job_id().map(str::to_owned)
            })
            .await;
        // JobStart goes out when the scheduler has seen the job in its cache, so the cancel finds it there.
        cluster.scheduler.cancel_job(job_id.as_str().into()).await.unwrap();
        cluster.recorder.job_ended("idle").await;
        query.await.unwrap().unwrap_err();
        let events = cluster.recorder.of_job(&job_id);
        let end = job_end(&events);
        assert_eq!(end.status, JobEndStatus::Cancelled);
        no_stage_runs(end);
        live_equals_stored(&cluster, &job_id, end).await;
        stages_enclose_tasks(&events, "idle");
        assert!(cluster.shutdown().await.is_clean());
    }
}

/// Stock records nothing of such a job.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_in_planning() {
    let stock = tempfile::tempdir().unwrap();
    let cluster = Setup::new(TaskSchedulingPolicy::PullStaged).stock_log(stock.path()).start().await;
    for adaptive in ["true", "false"] {
        let name = format!("unplannable-{adaptive}");
        // A correlated subquery that no rule turns into a join. A client would refuse it too, so it is handed in here.
        let sql =
            "select (select max(b.l_tax) from lineitem b where b.l_orderkey > a.l_orderkey limit 1) from lineitem a";
        let config = session_config_with_s3_support().set_str("ballista.planner.adaptive.enabled", adaptive);
        let session = Arc::new(SessionContext::new_with_state(session_state(config).unwrap()));
        for statement in tables().create_statements() {
            run(&session, &statement).await.unwrap();
        }
        let plan = session.state().create_logical_plan(sql).await.unwrap();
        let submitted = cluster.scheduler.submit_job(&name, session, &plan, None).await.unwrap();
        let job_id = cluster.recorder.job_ended(&name).await;
        assert_eq!(job_id, submitted.to_string());
        let events = cluster.recorder.of_job(&job_id);
        assert_eq!(kinds(&events), [EventKind::JobQueued, EventKind::JobEnd]);
        let EventData::JobQueued(queued) = events[0].data() else { panic!("{events:?}") };
        let end = job_end(&events);
        let JobEndStatus::Failed(message) = &end.status else { panic!("{:?}", end.status) };
        assert!(message.contains("planning"), "{message}");
        assert_eq!((queued.job_name.as_str(), queued.queued_at), (name.as_str(), end.queued_at));
        assert_eq!((end.index.status.as_str(), end.index.num_stages, end.started_at), ("Failed", 0, 0));

        // The entry of the job list is what the live scheduler has.
        let (_, jobs) = cluster.get("/api/jobs").await;
        let jobs: Vec<Value> = serde_json::from_str(&jobs).unwrap();
        let live = jobs.iter().find(|job| job["job_id"] == job_id.as_str()).unwrap();
        let stored: Value = serde_json::from_str(end.job.get()).unwrap();
        for (field, value) in live.as_object().unwrap() {
            // The scheduler and the tap each look at the clock.
            if field != "end_time" {
                assert_eq!(&stored[field], value, "{field}");
            }
        }
        assert!(!stock.path().join(format!("{job_id}.eventlog")).exists());
    }
    assert!(cluster.shutdown().await.is_clean());
}

/// An executor dies that holds what a running stage reads: the stage is rolled back, its input made again, and the job
/// succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_job_whose_executor_dies() {
    let policy = TaskSchedulingPolicy::PullStaged;
    let mut setup = Setup::new(policy);
    setup.executors = 0;
    setup.config = SchedulerConfig {
        executor_timeout_seconds: 2,
        expire_dead_executor_interval_seconds: 1,
        ..SchedulerConfig::default()
    };
    let cluster = setup.start().await;
    // One virtual core each, so that both get a task of the first stage.
    let mut executors = Vec::new();
    for count in 1..=2 {
        let executor = Mortal::start(policy, cluster.address, 1).await;
        let id = cluster
            .recorder
            .wait_for("ExecutorRegistered", |events| {
                let registered: Vec<_> = events
                    .iter()
                    .filter_map(|event| match event.data() {
                        EventData::ExecutorRegistered(executor) => Some(executor.executor_id.clone()),
                        _ => None,
                    })
                    .collect();
                (registered.len() == count).then(|| registered[count - 1].clone())
            })
            .await;
        executors.push((id, executor));
    }
    let client = cluster
        .client(&[
            ("ballista.planner.adaptive.enabled", "false"),
            ("datafusion.execution.target_partitions", "2"),
            ("ballista.job.name", "survivor"),
        ])
        .await;
    let sql = "select wait_at('survivor', c) from \
               (select l_returnflag, count(*) as c from lineitem group by l_returnflag) order by 1";
    let query = tokio::spawn(async move { run(&client, sql).await });

    let started = |events: &[Arc<Event>], stage_id: u32, attempt: u32| {
        events.iter().any(|event| match event.data() {
            EventData::StageStart(stage) => (stage.stage_id, stage.attempt) == (stage_id, attempt),
            _ => false,
        })
    };
    let doomed = cluster
        .recorder
        .wait_for("second stage", |events| {
            let first_stage = events.iter().find_map(|event| match event.data() {
                EventData::TaskEnd(task) if task.stage_id == 1 => Some(task.executor_id.clone()),
                _ => None,
            })?;
            started(events, 2, 0).then_some(first_stage)
        })
        .await;
    for (id, executor) in &mut executors {
        if *id == doomed {
            executor.kill();
        }
    }
    cluster.recorder.wait_for("second attempt", |events| started(events, 1, 1).then_some(())).await;
    gate::open("survivor");
    let job_id = cluster.recorder.job_ended("survivor").await;
    assert_eq!(query.await.unwrap(), Ok(3));

    let events = cluster.recorder.of_job(&job_id);
    assert_eq!(job_end(&events).status, JobEndStatus::Succeeded);
    let removed: Vec<_> = cluster
        .recorder
        .events()
        .iter()
        .filter_map(|event| match event.data() {
            EventData::ExecutorRemoved(executor) => Some(executor.executor_id.clone()),
            _ => None,
        })
        .collect();
    // The other one may be given up for a while too: with all its cores waiting at the gate, it does not poll.
    assert!(removed.contains(&doomed), "{removed:?}");
    // Every attempt that started ended, once, and one of them was rolled back.
    let mut open = HashSet::new();
    let mut rolled_back = 0;
    for event in &events {
        match event.data() {
            EventData::StageStart(stage) => assert!(open.insert((stage.stage_id, stage.attempt)), "{stage:?}"),
            EventData::StageEnd(stage) => {
                assert!(open.remove(&(stage.stage_id, stage.attempt)), "{stage:?}");
                rolled_back += usize::from(stage.status == StageStatus::RolledBack);
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(rolled_back > 0);
    assert!(cluster.shutdown().await.is_clean());
}

/// A job that runs for a while is told while it runs: the events don't wait for its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_running_job_is_told_as_it_runs() {
    for policy in POLICIES {
        let cluster = Setup::new(policy).start().await;
        let client = cluster.client(&[("ballista.job.name", "running")]).await;
        let gate = format!("running-{policy:?}");
        let sql = format!("select wait_at('{gate}', max(n_nationkey)) from nation");
        let query = tokio::spawn(async move { run(&client, &sql).await });
        let kinds = cluster
            .recorder
            .wait_for("TaskEnd before the job's end", |events| {
                let job: Vec<_> = events.iter().filter(|event| event.job_id().is_some()).cloned().collect();
                let told = job.iter().any(|event| event.kind() == EventKind::StageStart);
                told.then(|| kinds(&job))
            })
            .await;
        assert_eq!(kinds[..3], [EventKind::JobQueued, EventKind::JobStart, EventKind::StageStart]);
        assert!(!kinds.contains(&EventKind::JobEnd));
        gate::open(&gate);
        assert_eq!(query.await.unwrap(), Ok(1));
        cluster.recorder.job_ended("running").await;
        assert!(tokio::time::timeout(Duration::from_secs(60), cluster.shutdown()).await.unwrap().is_clean());
    }
}
