//! Plain logs of ours, loaded and served by the stock history server.

use std::fs;
use std::sync::Arc;

use axum::body::Body;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_event_sinks::{Compression, FileSink, FileSinkConfig};
use ballista_event_tpch::QUERIES;
use ballista_scheduler::history::{HistoryStore, history_router};
use tower::ServiceExt;

use crate::harness::Setup;
use crate::warnings;

#[tokio::test(flavor = "multi_thread")]
async fn stock_history_serves_our_plain_logs() {
    let directory = tempfile::tempdir().unwrap();
    let sink = FileSink::new(FileSinkConfig::new(directory.path()).with_compression(Compression::None)).unwrap();
    let cluster = Setup::new(TaskSchedulingPolicy::PushStaged).sink("file", sink).start().await;
    let mut live = Vec::new();
    for adaptive in ["true", "false"] {
        let client = cluster.client(&[("ballista.planner.adaptive.enabled", adaptive)]).await;
        for query in QUERIES {
            let (rows, job_id) = cluster.query(&client, &format!("{}-{adaptive}", query.name), query.sql).await;
            rows.unwrap();
            live.push(job_id);
        }
        let failing = "select 1 / (l_linenumber - l_linenumber) from lineitem";
        live.push(cluster.query(&client, &format!("failing-{adaptive}"), failing).await.1);
    }
    let mut bodies = Vec::new();
    for job_id in &live {
        for path in ["", "/stages", "/config", "/dot"] {
            let path = format!("/api/job/{job_id}{path}");
            let (status, body) = cluster.get(&path).await;
            assert_eq!(status, 200);
            bodies.push((path, body));
        }
    }
    assert!(cluster.shutdown().await.is_clean());

    let seen = warnings::of(|| {
        let store = HistoryStore::load(directory.path()).unwrap();
        assert_eq!(store.len(), live.len());
        store
    });
    assert_eq!(seen.warnings, [] as [&str; 0]);
    let served = history_router(Arc::new(seen.value));
    for (path, live) in bodies {
        let request = http::Request::get(&path).body(Body::empty()).unwrap();
        let response = served.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(String::from_utf8(body.into()).unwrap(), live, "{path}");
    }
    assert!(
        fs::read_dir(directory.path())
            .unwrap()
            .all(|entry| { entry.unwrap().file_name().to_str().unwrap().ends_with(".eventlog") })
    );
}
