//! A stock scheduler with the tap in place: [`start_server`], and the pieces it is made of.

mod routes;

use std::net::SocketAddr;
use std::sync::Arc;

use ballista_core::BALLISTA_VERSION;
use ballista_core::error::{BallistaError, Result};
use ballista_core::serde::{BallistaCodec, BallistaLogicalExtensionCodec, BallistaPhysicalExtensionCodec};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::metrics::default_metrics_collector;
use ballista_scheduler::scheduler_process;
use ballista_scheduler::scheduler_server::SchedulerServer;
use datafusion::DATAFUSION_VERSION;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tokio::net::TcpListener;

use crate::bus::EventBus;
use crate::tap::Tap;

/// A scheduler of the kind that stock's `start_server` starts.
pub type Scheduler = SchedulerServer<LogicalPlanNode, PhysicalPlanNode>;

/// Runs a scheduler until it fails, emitting what it does into `bus`.
///
/// As `ballista_scheduler::scheduler_process::start_server`, with the bus as one more argument. With a bus without
/// sinks the scheduler is the stock one throughout: nothing is wrapped. Shut the bus down when this returns or is
/// dropped.
///
/// # Errors
///
/// As the stock function: an invalid configuration, or an address that can't be bound.
pub async fn start_server(
    cluster: BallistaCluster,
    address: SocketAddr,
    config: Arc<SchedulerConfig>,
    bus: EventBus,
) -> Result<()> {
    let listener = TcpListener::bind(address).await.map_err(BallistaError::from)?;
    start_server_with_listener(cluster, listener, config, bus).await
}

/// As [`start_server`], on a listener that is bound already: for port 0, or a socket that was handed down.
///
/// # Errors
///
/// As [`start_server`].
pub async fn start_server_with_listener(
    cluster: BallistaCluster,
    listener: TcpListener,
    config: Arc<SchedulerConfig>,
    bus: EventBus,
) -> Result<()> {
    if bus.is_enabled() {
        let tap = Tap::new(bus);
        let scheduler = create_scheduler(cluster, config, &tap).await?;
        return serve(listener, scheduler, tap).await;
    }
    config.validate()?;
    let scheduler: Scheduler = scheduler_process::create_scheduler(cluster, config).await?;
    scheduler_process::start_grpc_service_with_listener(listener, scheduler).await
}

/// Builds a scheduler with the tap in place, and starts its event loop. [`serve`] makes it reachable.
///
/// # Errors
///
/// As stock's `create_scheduler`: an invalid configuration, or a cluster state that can't be initialised.
pub async fn create_scheduler(cluster: BallistaCluster, config: Arc<SchedulerConfig>, tap: &Tap) -> Result<Scheduler> {
    config.validate()?;
    let logical = config.override_logical_codec.clone();
    let physical = config.override_physical_codec.clone();
    let codec = BallistaCodec::new(
        logical.unwrap_or_else(|| Arc::new(BallistaLogicalExtensionCodec::default())),
        physical.unwrap_or_else(|| Arc::new(BallistaPhysicalExtensionCodec::default())),
    );
    let mut scheduler = SchedulerServer::new(
        config.scheduler_endpoint(),
        tap.wrap_cluster(cluster),
        codec,
        config,
        tap.wrap_metrics_collector(default_metrics_collector()?),
    );
    // Before its event loop runs, so that nothing is missed.
    tap.bind(&scheduler);
    scheduler.init().await?;
    Ok(scheduler)
}

/// Serves a scheduler's gRPC services, REST API and health probes on a listener until it fails.
///
/// As stock's `start_grpc_service_with_listener`, whose routes it composes anew so that the REST API can say
/// what the tap knows (see [`rest`](crate::rest)).
///
/// # Errors
///
/// When the listener fails.
pub async fn serve(listener: TcpListener, scheduler: Scheduler, tap: Tap) -> Result<()> {
    let address = listener.local_addr().map_err(BallistaError::from)?;
    tracing::info!(
        "Ballista Scheduler v{BALLISTA_VERSION} (DataFusion v{DATAFUSION_VERSION}) with event sinks listening on {address}"
    );
    let service = routes::all(scheduler, &tap).into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await.map_err(BallistaError::from)
}
