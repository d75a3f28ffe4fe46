//! From the command line to a running scheduler, and down again in order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ballista_core::error::{BallistaError, Result};
use ballista_core::object_store::{session_config_with_s3_support, session_state_with_s3_support};
use ballista_event_sink::bus::{BusGuard, EventBus, EventBusBuilder};
use ballista_event_sink::server::start_server_with_listener;
use ballista_event_sinks::{SinkName, SinkRegistry};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::cli::Cli;
use crate::executor::start_in_process;
use crate::logging;

/// Stack of a worker thread (bytes): that of the stock binary, whose planner recurses deeply.
const STACK_SIZE: usize = 32 * 1024 * 1024;

/// Exit code after a second signal, as a shell reports a process that SIGINT ended.
const EXIT_INTERRUPTED: u8 = 130;

/// Runs the scheduler as the command line says, with the sinks that `registry` knows.
///
/// Exits with 0 when a signal stopped it, 2 when the command line is wrong (the error, on standard error, says how to
/// mend it), 1 when it failed, 130 when a second signal cut the shutdown short.
pub fn main(registry: SinkRegistry) -> ExitCode {
    let (cli, bus) = match parse(&registry) {
        Ok(parsed) => parsed,
        Err(error) => error.exit(),
    };
    logging::init(&cli.scheduler);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_io()
        .enable_time()
        .thread_stack_size(STACK_SIZE)
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let code = runtime.block_on(run(cli, bus));
    // A sink that hangs, or a task in the middle of something, must not keep the process.
    runtime.shutdown_background();
    code
}

fn parse(registry: &SinkRegistry) -> std::result::Result<(Cli, Option<EventBusBuilder>), clap::Error> {
    let cli = Cli::try_parse_from(std::env::args_os(), registry)?;
    let bus = cli.events.bus(registry)?;
    Ok((cli, bus))
}

fn failed(error: &dyn std::fmt::Display) -> ExitCode {
    tracing::error!("{error}");
    ExitCode::FAILURE
}

async fn run(cli: Cli, bus: Option<EventBusBuilder>) -> ExitCode {
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return failed(&error),
    };
    if cli.events.event_log_dir.is_some() && !cli.events.event_sink.contains(&SinkName::FILE) {
        tracing::warn!("--event-log-dir is given, but the file sink is not among --event-sink: no logs are written");
    }
    let deadline = cli.events.shutdown_timeout();
    let (bus, guard) = match bus.map(EventBusBuilder::build).transpose() {
        Ok(Some((bus, guard))) => (bus, Some(guard)),
        Ok(None) => (EventBus::disabled(), None),
        Err(error) => return failed(&error),
    };
    let code = tokio::select! {
        outcome = serve(cli, bus) => match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
        name = signals.next() => {
            tracing::info!("{name} received, stopping");
            ExitCode::SUCCESS
        }
    };
    match guard {
        None => code,
        Some(guard) => tokio::select! {
            () = shut_down(guard, deadline) => code,
            name = signals.next() => {
                tracing::warn!("{name} received again, exiting at once: what the event sinks had not written is lost");
                ExitCode::from(EXIT_INTERRUPTED)
            }
        },
    }
}

async fn shut_down(guard: BusGuard, deadline: Duration) {
    let report = guard.shutdown(deadline).await;
    if report.is_clean() {
        tracing::info!("{report}");
    } else {
        tracing::warn!("{report}");
    }
}

/// Serves until the server fails.
async fn serve(cli: Cli, bus: EventBus) -> Result<()> {
    let address = format!("{}:{}", cli.scheduler.bind_host, cli.scheduler.bind_port);
    let listener = TcpListener::bind(&address)
        .await
        .map_err(|e| BallistaError::Configuration(format!("can't bind --bind-host and --bind-port {address}: {e}")))?;
    let address = listener.local_addr().map_err(BallistaError::from)?;
    let vcores = cli.standalone.then(|| match cli.standalone_vcores {
        Some(vcores) => usize::from(vcores),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    });
    let config: SchedulerConfig = cli.scheduler.try_into()?;
    let mut config = config
        .with_override_config_producer(Arc::new(session_config_with_s3_support))
        .with_override_session_builder(Arc::new(session_state_with_s3_support));
    // With port 0, executors must be told which one it became.
    config.bind_port = address.port();
    let policy = config.scheduling_policy;
    let cluster = BallistaCluster::new_from_config(&config).await?;
    // Aborted when this future is dropped, so that a scheduler that is stopping takes no more work.
    let mut server = JoinSet::new();
    server.spawn(start_server_with_listener(cluster, listener, Arc::new(config), bus));
    if let Some(vcores) = vcores {
        start_in_process(policy, reachable(address), vcores).await?;
        tracing::info!("standalone executor with {vcores} vcores started");
    }
    match server.join_next().await {
        Some(Ok(outcome)) => outcome,
        Some(Err(error)) => Err(BallistaError::General(format!("the server stopped: {error}"))),
        None => Ok(()),
    }
}

/// An address at which this process reaches a listener of its own.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
