//! Everything a scheduler serves on its port.
//!
//! Stock builds these routes in one private piece. They are put together here from the same public parts; the health
//! probes and the two JSON error bodies have no public part and are written anew, to the same bytes.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow_flight::flight_service_server::FlightServiceServer;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use ballista_core::BALLISTA_VERSION;
use ballista_core::extension::BallistaConfigGrpcEndpoint;
use ballista_core::flight_proxy_service::BallistaFlightProxyService;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use datafusion::DATAFUSION_VERSION;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use tonic::service::RoutesBuilder;
use tower_http::set_header::SetResponseHeaderLayer;

use super::Scheduler;
use crate::tap::Tap;

/// All routes, gRPC and HTTP.
pub(super) fn all(scheduler: Scheduler, tap: &Tap) -> Router {
    let scheduler = Arc::new(scheduler);
    let grpc = grpc(&scheduler).fallback(|| async { ErrorBody::new(StatusCode::NOT_FOUND, None) });
    let health = health(Arc::clone(&scheduler));
    let routes = if scheduler.state.config.disable_rest_api {
        grpc.merge(rest_disabled()).merge(health)
    } else {
        crate::rest::routes(scheduler, tap).merge(grpc).merge(health)
    };
    with_version_headers(routes)
}

fn grpc(scheduler: &Arc<Scheduler>) -> Router {
    let config = &scheduler.state.config;
    let max_decoding = config.grpc_server_max_decoding_message_size as usize;
    let max_encoding = config.grpc_server_max_encoding_message_size as usize;
    let mut services = RoutesBuilder::default();
    services.add_service(
        SchedulerGrpcServer::new(scheduler.as_ref().clone())
            .max_encoding_message_size(max_encoding)
            .max_decoding_message_size(max_decoding),
    );
    let endpoint = config.override_create_grpc_client_endpoint.clone();
    let flight_proxy = BallistaFlightProxyService::new(
        max_decoding,
        max_encoding,
        config.use_tls,
        endpoint.map(|customize| Arc::new(BallistaConfigGrpcEndpoint::new(customize))),
    );
    // Both serve the one Flight service. The SQL front end also does what the proxy does.
    #[cfg(feature = "flight-sql")]
    if config.flight_sql_enabled() {
        services.add_service(
            FlightServiceServer::new(flight_sql(scheduler, flight_proxy.clone()))
                .max_decoding_message_size(max_decoding)
                .max_encoding_message_size(max_encoding),
        );
    }
    if !config.flight_sql_enabled() && config.enable_embedded_flight_proxy {
        services.add_service(
            FlightServiceServer::new(flight_proxy)
                .max_decoding_message_size(max_decoding)
                .max_encoding_message_size(max_encoding),
        );
    }
    #[cfg(feature = "keda-scaler")]
    services.add_service(
        ballista_scheduler::scheduler_server::externalscaler::external_scaler_server::ExternalScalerServer::new(
            scheduler.as_ref().clone(),
        ),
    );
    services.routes().into_axum_router()
}

#[cfg(feature = "flight-sql")]
fn flight_sql(
    scheduler: &Arc<Scheduler>,
    proxy: BallistaFlightProxyService,
) -> ballista_flight_sql::BallistaFlightSqlService<Scheduler> {
    let mut service = ballista_flight_sql::BallistaFlightSqlService::new(Arc::clone(scheduler), proxy);
    if let Some(authenticator) = scheduler.state.config.override_flight_sql_authenticator.clone() {
        service = service.with_authenticator(authenticator);
    }
    if service.allows_anonymous() {
        tracing::warn!(
            "Arrow Flight SQL has no authenticator: whoever reaches this port can run queries, and all of them share \
             one session. Set SchedulerConfig::with_flight_sql_authenticator, or keep the port on a trusted network."
        );
    }
    service
}

fn rest_disabled() -> Router {
    let disabled =
        || async { ErrorBody::new(StatusCode::NOT_FOUND, Some("REST API has been disabled at startup".to_owned())) };
    Router::new().route("/api/{*path}", any(disabled))
}

fn health(scheduler: Arc<Scheduler>) -> Router {
    Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(readyz)).with_state(scheduler)
}

async fn readyz(State(scheduler): State<Arc<Scheduler>>) -> Response {
    let alive = executors_alive(&scheduler).await;
    if scheduler.is_ready() {
        (StatusCode::OK, format!("ready: {alive} executors registered\n")).into_response()
    } else {
        let required = scheduler.state.config.min_ready_executors;
        let text = format!("not ready: {alive}/{required} executors registered\n");
        (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
    }
}

/// Executors heard of within the timeout: for the probe's text, whose status is the scheduler's own judgement. Stock
/// leaves out those that are terminating, which can't be seen from here.
async fn executors_alive(scheduler: &Scheduler) -> usize {
    let timeout = Duration::from_secs(scheduler.state.config.executor_timeout_seconds);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let oldest = since_epoch.saturating_sub(timeout);
    let executors = scheduler.state.executor_manager.get_executors_state().await.unwrap_or_default();
    executors.iter().filter(|(_, last_seen, _)| last_seen.is_some_and(|seen| seen > oldest)).count()
}

fn with_version_headers(routes: Router) -> Router {
    let header = |name, product, version| {
        // A version number is a valid header value.
        let value = HeaderValue::try_from(format!("{product}/{version}")).ok();
        SetResponseHeaderLayer::overriding(name, move |_: &Response| value.clone())
    };
    routes.layer(header(header::SERVER, "ballista", BALLISTA_VERSION)).layer(header(
        HeaderName::from_static("x-powered-by"),
        "datafusion",
        DATAFUSION_VERSION,
    ))
}

/// The body of an error, as stock answers it.
#[derive(Serialize)]
struct ErrorBody {
    #[serde(skip)]
    status: StatusCode,
    http_code: u16,
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl ErrorBody {
    fn new(status: StatusCode, error: Option<String>) -> Self {
        Self { status, http_code: status.as_u16(), reason: status.canonical_reason(), error }
    }
}

impl IntoResponse for ErrorBody {
    fn into_response(self) -> Response {
        (self.status, Json(self)).into_response()
    }
}
