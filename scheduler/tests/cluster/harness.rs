//! A cluster in this process, a client for it, and a sink that remembers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ballista::prelude::SessionContextExt;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::object_store::{session_config_with_s3_support, session_state_with_s3_support};
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_event_sink::bus::{BusGuard, EventBus, EventBusBuilder, ShutdownReport};
use ballista_event_sink::server::{Scheduler, create_scheduler, serve};
use ballista_event_sink::tap::Tap;
use ballista_event_sink::{Event, EventData, EventKind, EventSink, SinkError, async_trait};
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_executor::new_standalone_executor_from_state;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use datafusion::execution::SessionState;
use datafusion::prelude::{SessionConfig, SessionContext};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// A test that waits longer than this has failed; nothing is measured by it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Remembers every event. Clones are the same recorder.
#[derive(Debug, Clone)]
pub struct Recorder {
    events: Arc<Mutex<Vec<Arc<Event>>>>,
    changed: watch::Sender<usize>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { events: Arc::default(), changed: watch::channel(0).0 }
    }
}

#[async_trait]
impl EventSink for Recorder {
    async fn write(&mut self, batch: &[Arc<Event>]) -> Result<(), SinkError> {
        let mut events = self.events.lock().unwrap();
        events.extend(batch.iter().cloned());
        self.changed.send_replace(events.len());
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

impl Recorder {
    pub fn events(&self) -> Vec<Arc<Event>> {
        self.events.lock().unwrap().clone()
    }

    pub fn of_job(&self, job_id: &str) -> Vec<Arc<Event>> {
        self.events().into_iter().filter(|event| event.job_id() == Some(job_id)).collect()
    }

    /// Waits until `found` finds something in what was recorded.
    pub async fn wait_for<T>(&self, what: &str, mut found: impl FnMut(&[Arc<Event>]) -> Option<T>) -> T {
        let mut changes = self.changed.subscribe();
        let waiting = async {
            loop {
                if let Some(found) = found(&self.events()) {
                    return found;
                }
                changes.changed().await.unwrap();
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(found) => found,
            Err(_) => panic!("no {what} in {:#?}", kinds(&self.events())),
        }
    }

    /// Waits for the JobEnd of the job of that name, and returns the job's id.
    pub async fn job_ended(&self, name: &str) -> String {
        self.wait_for(&format!("JobEnd of {name}"), |events| {
            events.iter().find_map(|event| match event.data() {
                EventData::JobEnd(end) if end.index.job_name == name => Some(end.index.job_id.clone()),
                _ => None,
            })
        })
        .await
    }

    /// Waits until that many jobs have ended.
    pub async fn jobs_ended(&self, count: usize) {
        self.wait_for(&format!("{count} JobEnds"), |events| {
            (events.iter().filter(|event| event.kind() == EventKind::JobEnd).count() >= count).then_some(())
        })
        .await;
    }
}

pub fn kinds(events: &[Arc<Event>]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind()).collect()
}

/// How a cluster is set up.
pub struct Setup {
    pub policy: TaskSchedulingPolicy,
    pub vcores: usize,
    pub executors: usize,
    pub config: SchedulerConfig,
    pub bus: EventBusBuilder,
}

impl Setup {
    pub fn new(policy: TaskSchedulingPolicy) -> Self {
        Self { policy, vcores: 4, executors: 1, config: SchedulerConfig::default(), bus: EventBus::builder() }
    }

    pub fn sink(mut self, name: &str, sink: impl EventSink + 'static) -> Self {
        self.bus = self.bus.sink(name, sink);
        self
    }

    /// Switches the stock event log on beside ours.
    pub fn stock_log(mut self, directory: &std::path::Path) -> Self {
        self.config.event_log_dir = Some(directory.to_str().unwrap().to_owned());
        self
    }

    pub async fn start(self) -> Cluster {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut config = self.config;
        config.bind_port = address.port();
        config.external_host = "127.0.0.1".to_owned();
        config.scheduling_policy = self.policy;
        config.override_config_producer = Some(Arc::new(session_config_with_s3_support));
        config.override_session_builder = Some(Arc::new(session_state));
        let config = Arc::new(config);
        let recorder = Recorder::default();
        let (bus, guard) = self.bus.sink("recorder", recorder.clone()).build().unwrap();
        let cluster = BallistaCluster::new_from_config(&config).await.unwrap();
        let tap = Tap::new(bus.clone());
        let scheduler = create_scheduler(cluster, config, &tap).await.unwrap();
        tokio::spawn(serve(listener, scheduler.clone(), tap.clone()));
        let cluster = Cluster { address, scheduler, tap, bus, guard, recorder };
        for _ in 0..self.executors {
            start_executor(self.policy, address, self.vcores).await;
        }
        cluster.executors_registered(self.executors).await;
        cluster
    }
}

/// A running cluster.
pub struct Cluster {
    pub address: SocketAddr,
    pub scheduler: Scheduler,
    pub tap: Tap,
    pub bus: EventBus,
    pub guard: BusGuard,
    pub recorder: Recorder,
}

impl Cluster {
    async fn executors_registered(&self, count: usize) {
        self.recorder
            .wait_for("ExecutorRegistered", |events| {
                let registered = events.iter().filter(|event| event.kind() == EventKind::ExecutorRegistered).count();
                (registered >= count).then_some(())
            })
            .await;
    }

    /// A client session with the TPC-H tables.
    pub async fn client(&self, settings: &[(&str, &str)]) -> SessionContext {
        client(self.address, settings).await
    }

    /// Runs a query under a name, and returns its rows and the id of its job.
    pub async fn query(&self, client: &SessionContext, name: &str, sql: &str) -> (Result<usize, String>, String) {
        run(client, &format!("SET ballista.job.name = '{name}'")).await.unwrap();
        let rows = run(client, sql).await;
        (rows, self.recorder.job_ended(name).await)
    }

    /// `GET` on the scheduler's port.
    pub async fn get(&self, path: &str) -> (u16, String) {
        let response = reqwest::get(format!("http://{}{path}", self.address)).await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    pub async fn shutdown(self) -> ShutdownReport {
        self.guard.shutdown(PATIENCE).await
    }
}

/// A client session with the TPC-H tables. Neither settings nor tables are jobs.
pub async fn client(scheduler: SocketAddr, settings: &[(&str, &str)]) -> SessionContext {
    let state = session_state(session_config_with_s3_support()).unwrap();
    let client = SessionContext::remote_with_state(&format!("df://{scheduler}"), state).await.unwrap();
    // A remote session takes no functions over from the state it is made of.
    client.register_udf(crate::gate::function());
    let settings = settings.iter().map(|(key, value)| format!("SET {key} = '{value}'"));
    for statement in settings.chain(tables().create_statements()) {
        run(&client, &statement).await.unwrap();
    }
    client
}

/// A session that knows [`wait_at`](crate::gate).
pub fn session_state(config: SessionConfig) -> datafusion::common::Result<SessionState> {
    session_state_with_s3_support(config).map(crate::gate::register)
}

/// Starts an executor on the current runtime.
pub async fn start_executor(policy: TaskSchedulingPolicy, scheduler: SocketAddr, vcores: usize) {
    let state = session_state(session_config_with_s3_support()).unwrap();
    if matches!(policy, TaskSchedulingPolicy::PullStaged) {
        let client = SchedulerGrpcClient::connect(format!("http://{scheduler}")).await.unwrap();
        new_standalone_executor_from_state(client, vcores, &state).await.unwrap();
        return;
    }
    let config = ExecutorProcessConfig {
        external_host: Some("127.0.0.1".to_owned()),
        scheduler_host: "127.0.0.1".to_owned(),
        scheduler_port: scheduler.port(),
        port: free_port().await,
        grpc_port: free_port().await,
        vcores,
        task_scheduling_policy: TaskSchedulingPolicy::PushStaged,
        override_config_producer: Some(Arc::new(session_config_with_s3_support)),
        override_function_registry: Some(Arc::new(BallistaFunctionRegistry::from(&state))),
        ..ExecutorProcessConfig::default()
    };
    tokio::spawn(async move { start_executor_process(Arc::new(config)).await });
}

async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

/// An executor that can be killed: it has a runtime of its own.
pub struct Mortal {
    runtime: Option<Runtime>,
}

impl Mortal {
    pub async fn start(policy: TaskSchedulingPolicy, scheduler: SocketAddr, vcores: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        runtime.spawn(async move { start_executor(policy, scheduler, vcores).await }).await.unwrap();
        Self { runtime: Some(runtime) }
    }

    /// No more polls, no more answers, no more files.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a statement; the number of rows it returned.
pub async fn run(client: &SessionContext, sql: &str) -> Result<usize, String> {
    let frame = client.sql(sql).await.map_err(|e| e.to_string())?;
    let batches = tokio::time::timeout(PATIENCE, frame.collect())
        .await
        .unwrap_or_else(|_| panic!("no result of {sql}"))
        .map_err(|e| e.to_string())?;
    Ok(batches.iter().map(|batch| batch.num_rows()).sum())
}

/// TPC-H at scale 0.01, made once and kept in the build directory.
pub fn tables() -> ballista_event_tpch::Tables {
    ballista_event_tpch::generate(&PathBuf::from(env!("CARGO_TARGET_TMPDIR")), 0.01).unwrap()
}
