//! A Ballista cluster with event sinks in one process, some jobs that end in every way a job can end, and what their
//! logs say afterwards.
//!
//! Run it with `cargo run --example quickstart`; `-- --help` shows what it can be told.
//!
//! The order of events is that of any embedder: build a bus, start a scheduler with it, let jobs run, shut the bus
//! down. The rest of the program is in three modules:
//!
//! - `jobs`: the queries, and how each is expected to end;
//! - `watch`: a sink on a channel, by which the program follows its own jobs;
//! - `report`: the table, made from nothing but the log files.

mod jobs;
mod progress;
mod report;
mod watch;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ballista_event_examples::cluster::{self, Cluster, run_query};
use ballista_event_sink::sink::BoxError;
use ballista_event_sink::{Event, EventBus, EventData};
use ballista_event_sinks::{Compression, FileSink, FileSinkConfig};
use clap::Parser;
use datafusion::prelude::SessionContext;
use tokio::sync::mpsc;

use jobs::{Ending, Job};
use progress::Progress;
use watch::Watch;

/// Longest that anything may take: that the executor joins, or that a job ends. Reached only when something is wrong.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long the sinks have to finish at the end.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// Runs a few queries on a Ballista cluster in this process, and shows the event logs they leave.
#[derive(Debug, Parser)]
#[command(name = "quickstart", version)]
struct Args {
    /// Where the event logs go [default: event-logs beside the data, emptied first]
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// Size of the TPC-H data: 1 is a gigabyte
    #[arg(long, default_value_t = 0.01, value_name = "FACTOR", value_parser = scale)]
    scale: f64,
    /// Write logs that are not compressed
    #[arg(long)]
    plain_logs: bool,
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(scale) if scale > 0.0 && scale <= 100.0 => Ok(scale),
        _ => Err("use a number above 0 and up to 100, such as 0.01".to_owned()),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    cluster::run(quickstart(args))
}

async fn quickstart(args: Args) -> Result<ExitCode, BoxError> {
    let mut progress = Progress::new();
    let data = cluster::data_directory();
    let logs = match args.log_dir {
        // Someone else's directory may hold someone else's logs: nothing is removed there.
        Some(directory) => directory,
        None => {
            let directory = data.join("event-logs");
            remove_logs(&directory)?;
            directory
        }
    };

    progress.show(format_args!("making TPC-H data in {}", data.display()));
    let scale = args.scale;
    let tables = tokio::task::spawn_blocking(move || ballista_event_tpch::generate(&data, scale)).await??;

    // Two sinks. The file sink writes the logs; the other one is there so that this program knows what goes on.
    let compression = if args.plain_logs { Compression::None } else { Compression::default() };
    let (watch, mut events) = Watch::new();
    let (bus, guard) = EventBus::builder()
        .plan_revisions(true)
        .sink("file", FileSink::new(FileSinkConfig::new(&logs).with_compression(compression))?)
        .sink("watch", watch)
        .build()?;

    progress.show(format_args!("starting a scheduler and an executor"));
    let cluster = Cluster::start(bus).await?;
    in_time("the executor to join", watch::executor_joined(&mut events)).await?;
    let client = cluster.client(&tables).await?;

    let jobs = jobs::all();
    let mut runs = Vec::with_capacity(jobs.len());
    for (number, job) in (1..).zip(&jobs) {
        progress.show(format_args!("{number}/{} {}", jobs.len(), job.name));
        let follow = follow(&cluster, &client, job, &mut events, |what| {
            progress.show(format_args!("{number}/{} {}: {what}", jobs.len(), job.name));
        });
        runs.push(in_time(&format!("the job {:?} to end", job.name), follow).await?);
    }

    // Nobody watches any more. The guard waits until the sinks have written what they were given, and tells what
    // was lost, which here is nothing.
    drop(events);
    progress.show(format_args!("shutting down"));
    let shutdown = guard.shutdown(SHUTDOWN).await;
    progress.clear();

    let mut unexpected = Vec::new();
    if !shutdown.is_clean() {
        unexpected.push(format!("events were lost: {shutdown}"));
    }
    // From here on only the logs count: what is shown is what they hold.
    let mut rows = Vec::with_capacity(runs.len());
    for run in &runs {
        let path = logs.join(format!("{}{}", run.job_id, if args.plain_logs { ".eventlog" } else { ".eventlog.gz" }));
        let row = report::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        unexpected.extend(row.compare(run));
        rows.push(row);
    }
    let text = report::render(&rows, &logs);
    // Written at once, and never mind if whoever reads has seen enough: `quickstart | head -3` is no failure.
    let _ = anstream::stdout().write_all(text.as_bytes());
    for text in &unexpected {
        anstream::eprintln!("unexpected: {text}");
    }
    Ok(if unexpected.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What became of a job, as its client saw it.
struct Run<'a> {
    job: &'a Job,
    job_id: String,
    /// Rows of the result, or why there is none.
    result: Result<usize, BoxError>,
}

/// Submits a job and follows it to its JobEnd; cancels it on the way, if that is how it is to end.
async fn follow<'a>(
    cluster: &Cluster,
    client: &SessionContext,
    job: &'a Job,
    events: &mut mpsc::Receiver<Arc<Event>>,
    mut tell: impl FnMut(String),
) -> Result<Run<'a>, BoxError> {
    let query = run_query(client, job.name, job.sql);
    tokio::pin!(query);
    let mut result = None;
    let mut job_id = None;
    let mut cancelled = false;
    let mut tasks = 0;
    loop {
        // The client waits for its result, and the events tell what happens meanwhile. Either may be the first to
        // know that the job is over.
        let event = tokio::select! {
            done = &mut query, if result.is_none() => {
                result = Some(done);
                continue;
            }
            event = events.recv() => event.ok_or("the event bus has stopped")?,
        };
        match event.data() {
            EventData::JobQueued(queued) if queued.job_name == job.name => job_id = Some(queued.job_id.clone()),
            EventData::StageStart(stage) if event.job_id() == job_id.as_deref() => {
                tell(format!("stage {} starts", stage.stage_id));
                if job.ending == Ending::Cancelled && !std::mem::replace(&mut cancelled, true) {
                    cluster.scheduler.cancel_job(job_id.clone().unwrap_or_default().into()).await?;
                }
            }
            EventData::TaskEnd(task) if event.job_id() == job_id.as_deref() => {
                tasks += 1;
                tell(format!("stage {} runs; tasks done: {tasks}", task.stage_id));
            }
            EventData::JobEnd(end) if Some(&end.index.job_id) == job_id.as_ref() => {
                let result = match result {
                    Some(result) => result,
                    None => query.await,
                };
                return Ok(Run { job, job_id: end.index.job_id.clone(), result });
            }
            _ => {}
        }
    }
}

async fn in_time<T>(what: &str, wait: impl Future<Output = Result<T, BoxError>>) -> Result<T, BoxError> {
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("waited {PATIENCE:?} in vain for {what}; RUST_LOG=info shows more").into()),
    }
}

/// Removes the logs of earlier runs, and nothing else.
fn remove_logs(directory: &Path) -> std::io::Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().contains(".eventlog") {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
