//! What is served beside the stock server: the same routes, with the same answers.

use std::sync::Arc;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::harness::{Setup, start_executor};

/// Paths that a scheduler serves, and some that it doesn't.
const PATHS: [&str; 14] = [
    "/healthz",
    "/readyz",
    "/api/version",
    "/api/openapi.json",
    "/api/jobs",
    "/api/metrics",
    "/api/job/none",
    "/api/job/none/stages",
    "/api/job/none/config",
    "/api/job/none/dot",
    "/api/executor/none",
    "/api/none",
    "/none",
    "/ballista.protobuf.SchedulerGrpc/None",
];

/// Status, the headers that identify a scheduler, and the body.
async fn answer(address: &str, path: &str) -> (u16, Vec<Option<String>>, String) {
    let response = reqwest::get(format!("http://{address}{path}")).await.unwrap();
    let headers = ["content-type", "server", "x-powered-by", "vary"]
        .map(|name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned()));
    (response.status().as_u16(), headers.into(), response.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_those_of_the_stock_server() {
    for disable_rest_api in [false, true] {
        let policy = TaskSchedulingPolicy::PullStaged;
        let mut setup = Setup::new(policy);
        setup.config.disable_rest_api = disable_rest_api;
        let ours = setup.start().await;

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = SchedulerConfig { bind_port: address.port(), disable_rest_api, ..SchedulerConfig::default() };
        let config = Arc::new(config.with_scheduler_policy(policy));
        let cluster = BallistaCluster::new_from_config(&config).await.unwrap();
        let scheduler =
            scheduler_process::create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, config).await.unwrap();
        let mut events = scheduler.cluster_state_events().await.unwrap();
        tokio::spawn(scheduler_process::start_grpc_service_with_listener(listener, scheduler));
        start_executor(policy, address, 4).await;
        futures::StreamExt::next(&mut events).await.unwrap();

        for path in PATHS {
            let stock = answer(&address.to_string(), path).await;
            assert_eq!(answer(&ours.address.to_string(), path).await, stock, "{path}");
        }
        if !disable_rest_api {
            for path in ["/api/state", "/api/executors"] {
                let shape = |text: &str| keys(&serde_json::from_str(text).unwrap());
                let stock = answer(&address.to_string(), path).await;
                let ours = answer(&ours.address.to_string(), path).await;
                assert_eq!((ours.0, ours.1, shape(&ours.2)), (stock.0, stock.1, shape(&stock.2)), "{path}");
            }
        }
        assert!(ours.shutdown().await.is_clean());
    }
}

/// The shape of a JSON value: its keys without what is under them.
fn keys(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), keys(value))).collect(),
        Value::Array(values) => values.iter().map(keys).collect(),
        _ => Value::Null,
    }
}
