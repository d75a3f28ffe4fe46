//! The binary as its users run it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;

use ballista_event_sink::{Event, EventData, EventKind};
use flate2::read::MultiGzDecoder;

use crate::harness::{PATIENCE, client, run};

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ballista-scheduler"));
    // No flag of ours may come from the environment of whoever runs the tests.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BALLISTA_") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command
}

/// A standalone scheduler on a port of its own.
struct Standalone {
    child: Child,
    address: SocketAddr,
    log: mpsc::Receiver<String>,
}

impl Standalone {
    fn start(args: &[&str]) -> Self {
        let (lines, log) = mpsc::channel();
        let child = command()
            .args(["--standalone", "--standalone-vcores", "2", "--bind-host", "127.0.0.1", "--bind-port", "0"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut scheduler = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)), log };
        let stderr = BufReader::new(scheduler.child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in stderr.lines() {
                // Nobody may be interested any more.
                let _ = lines.send(line.unwrap());
            }
        });
        let mut has_executor = false;
        while scheduler.address.port() == 0 || !has_executor {
            let line = scheduler.log.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("not started: {e}"));
            if let Some((_, found)) = line.split_once("with event sinks listening on ") {
                scheduler.address = found.trim().parse().unwrap();
            }
            has_executor |= line.contains("standalone executor");
        }
        scheduler
    }

    /// Sends a signal, and waits for the end. Returns the exit code and what was logged since the start.
    fn stop(mut self, signal: &str) -> (Option<i32>, Vec<String>) {
        let killed = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let status = self.child.wait().unwrap();
        (status.code(), self.log.iter().collect())
    }
}

/// A test that fails leaves no scheduler behind.
impl Drop for Standalone {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn query(address: SocketAddr, name: &str) {
    let client = client(address, &[("ballista.job.name", name)]).await;
    let sql = "select o_orderpriority, count(*) from orders group by 1 order by 1";
    assert_eq!(run(&client, sql).await, Ok(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_output_is_json_lines_and_nothing_else() {
    let mut scheduler = Standalone::start(&["--event-sink=stdout", "--event-log-plan-revisions"]);
    let stdout = BufReader::new(scheduler.child.stdout.take().unwrap());
    let lines = std::thread::spawn(move || stdout.lines().map(Result::unwrap).collect::<Vec<_>>());
    query(scheduler.address, "to stdout").await;
    let (code, log) = scheduler.stop("-TERM");
    assert_eq!(code, Some(0), "{log:#?}");
    let events: Vec<Event> = lines
        .join()
        .unwrap()
        .iter()
        .map(|line| {
            assert!(serde_json::from_str::<serde_json::Value>(line).unwrap().is_object());
            Event::from_json_line(line).unwrap().unwrap()
        })
        .collect();
    let kinds: Vec<_> = events.iter().map(Event::kind).collect();
    for kind in EventKind::ALL {
        assert!(kinds.contains(&kind) || kind == EventKind::ExecutorRemoved, "no {kind} in {kinds:?}");
    }
    assert_eq!(kinds.last(), Some(&EventKind::JobEnd));
    assert!(log.iter().any(|line| line.contains("event sink stdout") && line.contains("events written")), "{log:#?}");
}

/// The logs of a directory that is given alone, after SIGINT.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_alone_means_the_file_sink() {
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("made/for/it");
    let scheduler = Standalone::start(&["--event-log-dir", logs.to_str().unwrap(), "-s", "push-staged"]);
    query(scheduler.address, "to file").await;
    let (code, log) = scheduler.stop("-INT");
    assert_eq!(code, Some(0), "{log:#?}");
    let files: Vec<_> = std::fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    assert!(file.to_str().unwrap().ends_with(".eventlog.gz"), "{file:?}");
    let events = read(file);
    assert_eq!(events.first().map(Event::kind), Some(EventKind::JobQueued));
    let EventData::JobEnd(end) = events.last().unwrap().data() else { panic!("{events:?}") };
    assert_eq!(end.index.job_name, "to file");
    assert!(events.iter().any(|event| event.kind() == EventKind::ExecutorRegistered));
}

fn read(path: &Path) -> Vec<Event> {
    BufReader::new(MultiGzDecoder::new(std::fs::File::open(path).unwrap()))
        .lines()
        .map(|line| Event::from_json_line(&line.unwrap()).unwrap().unwrap())
        .collect()
}

#[test]
fn flags_come_from_the_environment_too() {
    let directory = tempfile::tempdir().unwrap();
    let output = command()
        .env("BALLISTA_EVENT_LOG_DIR", directory.path())
        .env("BALLISTA_EVENT_SINK", "file,nul")
        .output()
        .unwrap();
    refused(&output, &["--event-sink", "\"nul\"", "file, null, stdout"]);
}

#[test]
fn bad_input_is_refused_at_start() {
    let directory = tempfile::tempdir().unwrap();
    let not_a_directory = directory.path().join("file");
    std::fs::write(&not_a_directory, "").unwrap();
    let not_a_directory = not_a_directory.to_str().unwrap();
    let good = directory.path().to_str().unwrap();
    let below = format!("{not_a_directory}/below");
    let cases: [(&[&str], &[&str]); 11] = [
        (&["--event-sink=fiel"], &["--event-sink", "\"fiel\"", "file, null, stdout"]),
        (&["--event-sink=file"], &["--event-sink", "--event-log-dir"]),
        (&["--event-sink=File"], &["--event-sink", "'File'", "lower-case"]),
        (&["--event-log-dir", good, "--event-sink=file,file"], &["--event-sink", "\"file\"", "more than once"]),
        (&["--event-log-dir", not_a_directory], &["--event-log-dir", not_a_directory, "not a directory"]),
        (&["--event-log-dir", &below], &["--event-log-dir", &below, "could not create"]),
        (&["--event-log-compression-level=42"], &["--event-log-compression-level", "'42'", "1..=9"]),
        (&["--event-log-compression=zip"], &["--event-log-compression", "zip", "\"gzip\" or \"none\""]),
        (
            &["--event-log-compression=none", "--event-log-compression-level=3"],
            &["--event-log-compression-level 3", "--event-log-compression none"],
        ),
        (&["--event-queue-capacity=0"], &["--event-queue-capacity", "'0'", "1.."]),
        (&["--event-queue-policy=hope"], &["--event-queue-policy", "'hope'", "drop-newest, drop-oldest, block"]),
    ];
    for (args, said) in cases {
        refused(&command().args(args).output().unwrap(), said);
    }
}

fn refused(output: &Output, said: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(output.stdout.is_empty());
    for text in said {
        assert!(error.contains(text), "no {text:?} in: {error}");
    }
}
