//! A stock executor in this process, so that one process is a whole cluster.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::error::{BallistaError, Result};
use ballista_core::object_store::{session_config_with_s3_support, session_state_with_s3_support};
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_executor::new_standalone_executor_from_state;
use tokio::net::TcpListener;

/// Starts an executor with `vcores` virtual cores that works for the scheduler at `scheduler`, which must be listening.
///
/// Under pull scheduling it polls, and can't be told to cancel a task; under push scheduling it is a whole executor
/// with a gRPC service of its own. It runs until the process ends.
///
/// # Errors
///
/// When the scheduler can't be reached, or no port is free.
pub async fn start_in_process(policy: TaskSchedulingPolicy, scheduler: SocketAddr, vcores: usize) -> Result<()> {
    match policy {
        TaskSchedulingPolicy::PullStaged => start_polling(scheduler, vcores).await,
        TaskSchedulingPolicy::PushStaged => start_pushed(scheduler, vcores).await,
    }
}

async fn start_polling(scheduler: SocketAddr, vcores: usize) -> Result<()> {
    let client = SchedulerGrpcClient::connect(format!("http://{scheduler}"))
        .await
        .map_err(|e| BallistaError::General(format!("in-process executor can't reach the scheduler: {e}")))?;
    let state = session_state_with_s3_support(session_config_with_s3_support())?;
    new_standalone_executor_from_state(client, vcores, &state).await
}

async fn start_pushed(scheduler: SocketAddr, vcores: usize) -> Result<()> {
    let host = scheduler.ip();
    let config = ExecutorProcessConfig {
        bind_host: host.to_string(),
        external_host: Some(host.to_string()),
        scheduler_host: host.to_string(),
        scheduler_port: scheduler.port(),
        port: free_port(host).await?,
        grpc_port: free_port(host).await?,
        vcores,
        task_scheduling_policy: TaskSchedulingPolicy::PushStaged,
        override_config_producer: Some(Arc::new(session_config_with_s3_support)),
        ..ExecutorProcessConfig::default()
    };
    tokio::spawn(async move {
        if let Err(error) = start_executor_process(Arc::new(config)).await {
            tracing::error!(%error, "in-process executor failed");
        }
    });
    Ok(())
}

/// A port that was free a moment ago. The executor binds its ports itself and can't be given a socket.
async fn free_port(host: IpAddr) -> Result<u16> {
    let listener = TcpListener::bind((host, 0)).await.map_err(BallistaError::from)?;
    Ok(listener.local_addr().map_err(BallistaError::from)?.port())
}
