//! Sinks that hang, err and panic: jobs finish, a healthy sink beside them loses nothing, and the counters add up.

use std::sync::Arc;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_event_sink::bus::SinkStats;
use ballista_event_sink::{Event, EventKind, EventSink, SinkError, async_trait};

use crate::harness::{PATIENCE, Setup, run};

/// What a sink does instead of writing.
#[derive(Debug, Clone, Copy)]
enum Broken {
    /// Sleeps for ever, without Tokio knowing.
    Hangs,
    /// Never comes back, as a future.
    Pends,
    /// May pass, says it, and never does.
    ErrsForNow,
    ErrsForGood,
    Panics,
}

#[async_trait]
impl EventSink for Broken {
    async fn write(&mut self, _: &[Arc<Event>]) -> Result<(), SinkError> {
        match self {
            Self::Hangs => loop {
                std::thread::park();
            },
            Self::Pends => std::future::pending().await,
            Self::ErrsForNow => Err(SinkError::transient("disk full")),
            Self::ErrsForGood => Err(SinkError::fatal("no such host")),
            Self::Panics => panic!("a broken sink"),
        }
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

fn adds_up(stats: &SinkStats) {
    assert_eq!(stats.emitted, stats.written + stats.dropped_total() + stats.failed + stats.waiting, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_jobs_beside_broken_sinks() {
    const JOBS: usize = 100;
    let cluster = Setup::new(TaskSchedulingPolicy::PullStaged)
        .sink("hangs", Broken::Hangs)
        .sink("pends", Broken::Pends)
        .sink("errs-for-now", Broken::ErrsForNow)
        .sink("errs-for-good", Broken::ErrsForGood)
        .sink("panics", Broken::Panics)
        .start()
        .await;
    let client = Arc::new(cluster.client(&[]).await);
    let mut queries = tokio::task::JoinSet::new();
    for key in 0..JOBS {
        let client = Arc::clone(&client);
        queries.spawn(async move {
            let sql = format!("select n_name, count(*) from nation where n_nationkey <> {key} group by n_name");
            run(&client, &sql).await
        });
    }
    while let Some(rows) = queries.join_next().await {
        let rows = rows.unwrap().unwrap();
        assert!((24..=25).contains(&rows));
    }
    cluster.recorder.jobs_ended(JOBS).await;
    cluster.bus.stats().iter().for_each(adds_up);

    let recorder = cluster.recorder.clone();
    let deadline = std::time::Duration::from_millis(500);
    let report = tokio::time::timeout(PATIENCE, cluster.guard.shutdown(deadline)).await.unwrap();
    for sink in &report.sinks {
        adds_up(&sink.stats);
        assert_eq!(sink.stats.waiting, 0, "{report}");
        if sink.stats.name == "recorder" {
            assert!(sink.is_clean(), "{report}");
            assert_eq!(sink.stats.written as usize, recorder.events().len());
        } else {
            assert_eq!(sink.stats.written, 0, "{report}");
            assert!(!sink.is_clean());
        }
    }
    for kind in [EventKind::JobQueued, EventKind::JobStart, EventKind::JobEnd] {
        assert_eq!(recorder.events().iter().filter(|event| event.kind() == kind).count(), JOBS, "{kind}");
    }
}
