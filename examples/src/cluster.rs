//! A whole Ballista cluster in this process, for as long as an example runs.
//!
//! [`Cluster::start`] is the part to read: it shows where the event bus goes into a scheduler that you build yourself.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use ballista::prelude::SessionContextExt;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_event_scheduler::executor::start_in_process;
use ballista_event_sink::EventBus;
use ballista_event_sink::server::{Scheduler, create_scheduler, serve};
use ballista_event_sink::sink::BoxError;
use ballista_event_sink::tap::Tap;
use ballista_event_tpch::Tables;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use datafusion::prelude::SessionContext;
use tokio::net::TcpListener;

/// Virtual cores of the executor: enough for tasks to run side by side, on any machine.
const VCORES: usize = 4;

/// Stack of a worker thread (bytes). Plans are trees, and are walked by recursion: the scheduler's binary has as much.
const STACK_SIZE: usize = 32 * 1024 * 1024;

/// Exit code of a program that was interrupted, as shells have it.
const INTERRUPTED: u8 = 130;

/// A scheduler and an executor.
pub struct Cluster {
    /// The scheduler, for what has no client API.
    pub scheduler: Scheduler,
    /// Where it listens: gRPC for clients and executors, and the REST API.
    pub address: SocketAddr,
}

impl Cluster {
    /// Starts both. The scheduler emits into `bus` what it does.
    ///
    /// The executor joins a moment later (ExecutorRegistered tells when); jobs that come before wait for it.
    ///
    /// # Errors
    ///
    /// When no port can be bound, or the scheduler can't be set up.
    pub async fn start(bus: EventBus) -> Result<Self, BoxError> {
        // Port 0 is whatever port is free, so that examples can run beside each other and beside a real scheduler.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let config = SchedulerConfig {
            // The executor calls back under the *configured* name and port, so these must be the real ones.
            external_host: address.ip().to_string(),
            bind_port: address.port(),
            // Ballista's default, said aloud: with pull scheduling executors only ask for work, and nobody can tell them that a
            // job was cancelled. With push scheduling the scheduler calls them.
            scheduling_policy: TaskSchedulingPolicy::PushStaged,
            ..SchedulerConfig::default()
        };
        let config = Arc::new(config);
        let cluster = BallistaCluster::new_from_config(&config).await?;

        // Where the bus goes in: the tap watches the scheduler, and emits into it. The rest is what everyone does who
        // embeds a scheduler. (Whoever needs no handle on the scheduler has it shorter: `start_server` does all this.)
        let tap = Tap::new(bus);
        let scheduler = create_scheduler(cluster, Arc::clone(&config), &tap).await?;

        tokio::spawn(serve(listener, scheduler.clone(), tap));
        start_in_process(config.scheduling_policy, address, VCORES).await?;
        Ok(Self { scheduler, address })
    }

    /// A client session that knows the TPC-H tables.
    ///
    /// # Errors
    ///
    /// When the tables can't be read.
    pub async fn client(&self, tables: &Tables) -> Result<SessionContext, BoxError> {
        let client = SessionContext::remote(&format!("df://{}", self.address)).await?;
        for statement in tables.create_statements() {
            client.sql(&statement).await?.collect().await?;
        }
        Ok(client)
    }
}

/// Runs a query as a job of this name, and counts the rows of its result.
///
/// # Errors
///
/// When the query can't be planned, fails, or is cancelled.
pub async fn run_query(client: &SessionContext, name: &str, sql: &str) -> Result<usize, BoxError> {
    client.sql(&format!("SET ballista.job.name = '{name}'")).await?.collect().await?;
    let batches = client.sql(sql).await?.collect().await?;
    Ok(batches.iter().map(|batch| batch.num_rows()).sum())
}

/// Where examples keep their data: `target/quickstart` of the workspace one stands in, or else the system's directory
/// for temporary files.
pub fn data_directory() -> PathBuf {
    let target = std::env::current_dir().map(|current| current.join("target")).ok().filter(|target| target.is_dir());
    match target {
        Some(target) => target.join("quickstart"),
        None => std::env::temp_dir().join("ballista-event-quickstart"),
    }
}

/// Runs the body of an example to its end, or until Ctrl-C.
///
/// An executor, in Ballista, listens for Ctrl-C itself and then merely stops working, so whoever has one in the
/// process must end the process. Log messages show, on standard error, only where `RUST_LOG` asks for them.
pub fn run(body: impl Future<Output = Result<ExitCode, BoxError>>) -> ExitCode {
    if let Ok(filter) = std::env::var("RUST_LOG") {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(STACK_SIZE).build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let code = runtime.block_on(async {
        tokio::select! {
            outcome = body => outcome.unwrap_or_else(|error| failed(error.as_ref())),
            _ = tokio::signal::ctrl_c() => ExitCode::from(INTERRUPTED),
        }
    });
    // The cluster is still up. Nothing is left for it to do, so nobody waits for it.
    runtime.shutdown_background();
    code
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    anstream::eprintln!("error: {error}");
    ExitCode::FAILURE
}
