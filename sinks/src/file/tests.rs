//! What ends up on the disk, whatever happens on the way.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ballista_event_sink::event::Event;
use ballista_event_sink::sink::{EventSink, SinkError};
use flate2::read::MultiGzDecoder;

use super::disk::{Operation, faults};
use super::*;
use crate::testing::{block_on, bulky, job_end, joined, left, lines_of, queued, stage_start, task_end};

const EIO: i32 = 5;
const EACCES: i32 = 13;
const ENOSPC: i32 = 28;

/// A directory, a sink that writes to it, and no faults.
struct Bench {
    directory: tempfile::TempDir,
    sink: FileSink,
}

impl Bench {
    fn new() -> Self {
        Self::with(|config| config)
    }

    fn with(configure: impl FnOnce(FileSinkConfig) -> FileSinkConfig) -> Self {
        faults::heal();
        let directory = tempfile::tempdir().unwrap();
        let sink = FileSink::new(configure(FileSinkConfig::new(directory.path().join("logs")))).unwrap();
        Self { directory, sink }
    }

    fn logs(&self) -> PathBuf {
        self.directory.path().join("logs")
    }

    fn write(&mut self, batch: &[Arc<Event>]) -> Result<(), SinkError> {
        block_on(self.sink.write(batch))
    }

    fn flush(&mut self) {
        block_on(self.sink.flush()).unwrap();
    }

    fn close(&mut self) {
        block_on(self.sink.close()).unwrap();
    }

    /// As the bus does it after a panic: a fresh clone, and the old one is dropped.
    fn replace(&mut self) {
        self.sink = self.sink.clone();
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(self.logs()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[track_caller]
    fn assert_log(&self, name: &str, events: &[Arc<Event>]) {
        assert_eq!(text(&unzip(&self.bytes(name))), text(&lines_of(events)));
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.logs().join(name)).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The contents of a whole gzip file.
fn unzip(bytes: &[u8]) -> Vec<u8> {
    let mut contents = Vec::new();
    MultiGzDecoder::new(bytes).read_to_end(&mut contents).unwrap();
    contents
}

/// What can be decoded of a torn gzip file.
fn unzip_torn(bytes: &[u8]) -> Vec<u8> {
    let mut contents = Vec::new();
    let mut decoder = MultiGzDecoder::new(bytes);
    let mut buffer = [0; 64];
    while let Ok(count @ 1..) = decoder.read(&mut buffer) {
        contents.extend_from_slice(&buffer[..count]);
    }
    contents
}

/// Number of gzip members of a file.
fn members(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let mut decoder = flate2::bufread::GzDecoder::new(bytes);
        std::io::copy(&mut decoder, &mut std::io::sink()).unwrap();
        bytes = decoder.into_inner();
        count += 1;
    }
    count
}

fn a_job(job_id: &str) -> Vec<Arc<Event>> {
    vec![queued(job_id), stage_start(job_id, 1), task_end(job_id, 0, "x"), job_end(job_id)]
}

#[test]
fn a_job_is_one_finished_log() {
    let mut bench = Bench::new();
    let job = a_job("j");
    bench.write(&job[..2]).unwrap();
    assert_eq!(bench.names(), ["j.eventlog.gz.running"]);
    bench.write(&job[2..]).unwrap();
    assert_eq!(bench.names(), ["j.eventlog.gz"]);
    bench.assert_log("j.eventlog.gz", &job);
    assert_eq!(members(&bench.bytes("j.eventlog.gz")), 1);
    assert_eq!(bench.sink.writer.open_logs(), 0);
}

#[test]
fn without_compression_a_log_is_lines() {
    let mut bench = Bench::with(|config| config.with_compression(Compression::None));
    let job = a_job("j");
    bench.write(&job[..3]).unwrap();
    bench.flush();
    assert_eq!(text(&bench.bytes("j.eventlog.running")), text(&lines_of(&job[..3])));
    bench.write(&job[3..]).unwrap();
    assert_eq!(bench.names(), ["j.eventlog"]);
    assert_eq!(text(&bench.bytes("j.eventlog")), text(&lines_of(&job)));
}

#[test]
fn jobs_may_interleave_in_one_batch() {
    let mut bench = Bench::new();
    let (a, b) = (a_job("a"), a_job("../b"));
    let batch: Vec<_> = a.iter().zip(&b).flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
    bench.write(&batch).unwrap();
    assert_eq!(bench.names(), ["%2E.%2Fb.eventlog.gz", "a.eventlog.gz"]);
    bench.assert_log("a.eventlog.gz", &a);
    bench.assert_log("%2E.%2Fb.eventlog.gz", &b);
}

#[cfg(unix)]
#[test]
fn others_can_not_read() {
    use std::os::unix::fs::PermissionsExt;

    let mut bench = Bench::new();
    bench.write(&a_job("j")).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&bench.logs()) & !0o750, 0);
    assert_eq!(mode(&bench.logs().join("j.eventlog.gz")) & !0o640, 0);
}

#[test]
fn a_torn_copy_is_readable_up_to_the_flush() {
    let mut bench = Bench::new();
    let before = [queued("j"), bulky("j", 1, 5000)];
    bench.write(&before).unwrap();
    bench.flush();
    let flushed = bench.bytes("j.eventlog.gz.running");
    assert_eq!(text(&unzip_torn(&flushed)), text(&lines_of(&before)));

    bench.write(&[bulky("j", 2, 5000)]).unwrap();
    bench.flush();
    let more = bench.bytes("j.eventlog.gz.running");
    for cut in [flushed.len(), flushed.len() + 1, flushed.len() + 1000] {
        assert!(unzip_torn(&more[..cut]).starts_with(&lines_of(&before)));
    }
}

#[test]
fn flushing_again_adds_nothing() {
    let mut bench = Bench::new();
    bench.write(&[queued("j")]).unwrap();
    bench.flush();
    let flushed = bench.bytes("j.eventlog.gz.running");
    bench.flush();
    assert_eq!(bench.bytes("j.eventlog.gz.running"), flushed);
}

#[test]
fn much_input_is_flushed_unasked() {
    let mut bench = Bench::with(|config| config.with_flush_bytes(1000));
    let big = bulky("j", 1, 2000);
    bench.write(std::slice::from_ref(&big)).unwrap();
    bench.write(&[queued("j")]).unwrap();
    assert_eq!(text(&unzip_torn(&bench.bytes("j.eventlog.gz.running"))), text(&lines_of(&[big])));
}

#[test]
fn the_quietest_log_is_closed_and_continued() {
    let mut bench = Bench::with(|config| config.with_max_open_files(1));
    let (a, b) = (a_job("a"), a_job("b"));
    for (a, b) in a.iter().zip(&b) {
        bench.write(&[a.clone(), b.clone()]).unwrap();
        assert!(bench.sink.writer.open_logs() <= 1);
    }
    for (name, events) in [("a.eventlog.gz", &a), ("b.eventlog.gz", &b)] {
        bench.assert_log(name, events);
        assert!(members(&bench.bytes(name)) > 1);
    }
}

#[test]
fn the_log_used_least_recently_makes_way() {
    let mut bench = Bench::with(|config| config.with_max_open_files(2));
    bench.write(&[queued("a"), queued("b"), stage_start("a", 1), queued("c")]).unwrap();
    let mut open: Vec<_> = ["a", "b", "c"].into_iter().filter(|job| bench.sink.writer.is_open(job)).collect();
    open.sort_unstable();
    assert_eq!(open, ["a", "c"]);
}

#[test]
fn while_a_log_can_not_be_closed_another_job_waits() {
    let mut bench = Bench::with(|config| config.with_max_open_files(1));
    bench.write(&[queued("a")]).unwrap();
    faults::leave_room(3);
    let batch = [queued("b"), job_end("b")];
    let error = bench.write(&batch).unwrap_err();
    assert!(matches!(error, SinkError::Transient { written: 0, .. }));
    // Its own job may go on: that begins a new member, in memory.
    bench.write(&[stage_start("a", 1)]).unwrap();
    faults::heal();
    bench.write(&batch).unwrap();
    bench.write(&[job_end("a")]).unwrap();
    bench.assert_log("a.eventlog.gz", &[queued("a"), stage_start("a", 1), job_end("a")]);
    bench.assert_log("b.eventlog.gz", &batch);
}

#[test]
fn an_executor_is_introduced_once_before_its_first_task() {
    let mut bench = Bench::new();
    let (x, y) = (joined("x", 1), joined("y", 2));
    let job = [queued("j"), task_end("j", 0, "x"), task_end("j", 1, "x"), task_end("j", 2, "z"), job_end("j")];
    bench.write(&[x.clone(), y]).unwrap();
    bench.write(&job).unwrap();
    let [queued, t0, t1, t2, end] = job;
    bench.assert_log("j.eventlog.gz", &[queued, x, t0, t1, t2, end]);
}

#[test]
fn joins_and_leaves_go_to_open_logs() {
    let mut bench = Bench::new();
    let events = [
        queued("j"),
        joined("x", 1),
        task_end("j", 0, "x"),
        left("x", 2),
        joined("x", 3),
        task_end("j", 1, "x"),
        job_end("j"),
    ];
    bench.write(&events).unwrap();
    bench.assert_log("j.eventlog.gz", &events);
}

#[test]
fn who_left_is_not_introduced() {
    let mut bench = Bench::new();
    bench.write(&[joined("x", 1), left("x", 2)]).unwrap();
    bench.write(&a_job("j")).unwrap();
    bench.assert_log("j.eventlog.gz", &a_job("j"));
}

#[test]
fn a_closed_log_knows_whom_it_introduced() {
    let mut bench = Bench::with(|config| config.with_max_open_files(1));
    let x = joined("x", 1);
    let back = joined("x", 2);
    let others = [queued("other")];
    let (t0, t1, t2) = (task_end("j", 0, "x"), task_end("j", 1, "x"), task_end("j", 2, "x"));
    bench.write(&[x.clone(), queued("j"), t0.clone()]).unwrap();
    bench.write(&others).unwrap();
    bench.write(std::slice::from_ref(&t1)).unwrap();
    bench.write(&[stage_start("other", 1)]).unwrap();
    // Missed by the closed log, which introduces the executor again as it is now.
    bench.write(std::slice::from_ref(&back)).unwrap();
    bench.write(&[t2.clone(), job_end("j")]).unwrap();
    bench.assert_log("j.eventlog.gz", &[queued("j"), x, t0, t1, back, t2, job_end("j")]);
}

#[test]
fn what_logs_know_of_executors_is_bounded() {
    let mut bench = Bench::new();
    bench.write(&[queued("j")]).unwrap();
    for at in 0..100 {
        bench.write(&[joined("x", at), left("x", at)]).unwrap();
    }
    assert!(bench.sink.writer.introduced("j") <= 1);
}

#[test]
fn a_late_event_is_rejected() {
    let mut bench = Bench::new();
    bench.write(&a_job("j")).unwrap();
    let done = bench.bytes("j.eventlog.gz");
    let expected = format!(
        "job \"j\" has ended: its event log {} is finished, and an event that comes later is lost",
        bench.logs().join("j.eventlog.gz").display()
    );
    let batch = [queued("k"), stage_start("j", 2), stage_start("k", 2)];
    let error = bench.write(&batch).unwrap_err();
    assert!(matches!(error, SinkError::Rejected { written: 1, .. }));
    assert_eq!(error.to_string(), expected);
    bench.write(&batch[2..]).unwrap();

    // A clone, or another run, finds out from the disk.
    bench.replace();
    assert_eq!(bench.write(&[stage_start("j", 2)]).unwrap_err().to_string(), expected);
    assert_eq!(bench.bytes("j.eventlog.gz"), done);
    assert_eq!(bench.names(), ["j.eventlog.gz", "k.eventlog.gz.running"]);
}

#[test]
fn a_running_log_of_someone_else_is_left_alone() {
    let mut bench = Bench::new();
    let running = bench.logs().join("j.eventlog.gz.running");
    fs::write(&running, "theirs").unwrap();
    for event in a_job("j") {
        let error = bench.write(&[event]).unwrap_err();
        assert!(matches!(error, SinkError::Rejected { written: 0, .. }));
        assert!(error.to_string().contains("another scheduler, or an earlier run, owns it"));
    }
    assert_eq!(fs::read(&running).unwrap(), b"theirs");
    // It is not looked for on the disk again.
    fs::remove_file(&running).unwrap();
    assert!(bench.write(&[queued("j")]).is_err());
    assert!(bench.names().is_empty());
}

#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    let mut bench = Bench::new();
    let target = bench.directory.path().join("target");
    std::os::unix::fs::symlink(&target, bench.logs().join("j.eventlog.gz.running")).unwrap();
    assert!(matches!(bench.write(&[queued("j")]), Err(SinkError::Rejected { .. })));
    assert!(!target.exists());
}

#[test]
fn a_finished_log_is_not_overwritten() {
    let mut bench = Bench::new();
    bench.write(&[queued("j")]).unwrap();
    fs::write(bench.logs().join("j.eventlog.gz"), "theirs").unwrap();
    let error = bench.write(&[job_end("j")]).unwrap_err();
    assert!(matches!(error, SinkError::Rejected { .. }));
    assert!(error.to_string().contains("exists and is not overwritten"), "{error}");
    assert_eq!(bench.bytes("j.eventlog.gz"), b"theirs");
    bench.assert_log("j.eventlog.gz.running", &[queued("j"), job_end("j")]);
    assert!(bench.write(&[stage_start("j", 1)]).is_err());
}

#[test]
fn the_end_of_a_job_goes_on_with_the_step_that_failed() {
    for (step, errno) in [
        (Operation::Write, ENOSPC),
        (Operation::Sync, EIO),
        (Operation::Rename, EACCES),
        (Operation::SyncDirectory, EIO),
    ] {
        let mut bench = Bench::new();
        let job = a_job("j");
        faults::fail(step, errno);
        for _ in 0..3 {
            let error = bench.write(&[queued("k"), job_end("j")]).unwrap_err();
            assert!(matches!(error, SinkError::Transient { written: 1, .. }), "{step:?}");
            assert!(error.to_string().contains(&format!("(os error {errno})")), "{error}");
        }
        // Nothing comes behind the JobEnd.
        bench.write(&[joined("x", 1)]).unwrap();
        faults::heal();
        bench.write(&job[3..]).unwrap();
        bench.assert_log("j.eventlog.gz", &job[3..]);
        assert_eq!(bench.names(), ["j.eventlog.gz", "k.eventlog.gz.running"]);
    }
}

#[test]
fn a_directory_that_is_gone_may_come_back() {
    let mut bench = Bench::new();
    let away = bench.directory.path().join("away");
    bench.write(&[queued("j")]).unwrap();
    fs::rename(bench.logs(), &away).unwrap();
    for batch in [[job_end("j")], [queued("k")]] {
        let error = bench.write(&batch).unwrap_err();
        assert!(matches!(error, SinkError::Transient { written: 0, .. }));
        assert!(error.to_string().ends_with("put the directory back, and writing goes on"), "{error}");
    }
    fs::rename(&away, bench.logs()).unwrap();
    bench.write(&[job_end("j"), queued("k")]).unwrap();
    bench.assert_log("j.eventlog.gz", &[queued("j"), job_end("j")]);
}

#[test]
fn a_running_log_that_is_removed_is_lost_and_holds_up_nobody() {
    let mut bench = Bench::with(|config| config.with_max_open_files(1));
    bench.write(&[queued("j"), queued("k")]).unwrap();
    for job in ["j", "k"] {
        fs::remove_file(bench.logs().join(format!("{job}.eventlog.gz.running"))).unwrap();
    }
    // One is reopened, the other is renamed.
    for job in ["k", "j"] {
        let error = bench.write(&[job_end(job)]).unwrap_err();
        assert!(matches!(error, SinkError::Rejected { .. }));
        assert!(error.to_string().contains("was removed while its job ran"), "{error}");
    }
    bench.write(&a_job("l")).unwrap();
    assert_eq!(bench.names(), ["l.eventlog.gz"]);
}

#[test]
fn a_disk_that_is_full_for_a_while_leaves_a_correct_log() {
    for compression in [Compression::default(), Compression::None] {
        let mut events: Vec<_> = (0..20).map(|i| bulky("j", i, 20_000)).collect();
        events.push(job_end("j"));
        for room in [0, 1, 9, 70_000] {
            let mut bench = Bench::with(|config| config.with_compression(compression));
            faults::leave_room(room);
            let mut taken = 0;
            // Once the log is stuck nothing more is taken over, however often it is tried.
            for _ in 0..3 {
                let error = bench.write(&events[taken..]).unwrap_err();
                assert!(matches!(error, SinkError::Transient { .. }));
                taken += error.written();
                assert!(block_on(bench.sink.flush()).is_err());
            }
            assert!(taken < events.len() - 1);
            faults::heal();
            bench.flush();
            bench.write(&events[taken..]).unwrap();
            let bytes = bench.bytes(&bench.names()[0]);
            let contents = if compression == Compression::None { bytes } else { unzip(&bytes) };
            assert!(contents == lines_of(&events), "{compression} with {room} bytes of room");
        }
    }
}

#[test]
fn joins_are_written_once_to_each_log_even_when_one_is_stuck() {
    let mut bench = Bench::with(|config| config.with_flush_bytes(1));
    bench.write(&[queued("a"), queued("b")]).unwrap();
    faults::fail(Operation::Write, ENOSPC);
    let join = [joined("x", 1)];
    let error = bench.write(&join).unwrap_err();
    assert!(matches!(error, SinkError::Transient { written: 0, .. }));
    // By now both logs have made a sync point, and have room for more in memory.
    bench.write(&join).unwrap();
    faults::heal();
    bench.write(&[job_end("a"), job_end("b")]).unwrap();
    for job in ["a", "b"] {
        bench.assert_log(&format!("{job}.eventlog.gz"), &[queued(job), join[0].clone(), job_end(job)]);
    }
}

#[test]
fn closing_leaves_running_logs_whole() {
    let mut bench = Bench::new();
    let (a, b) = ([queued("a"), stage_start("a", 1)], [queued("b")]);
    bench.write(&a).unwrap();
    bench.write(&b).unwrap();
    bench.close();
    assert_eq!(bench.names(), ["a.eventlog.gz.running", "b.eventlog.gz.running"]);
    bench.assert_log("a.eventlog.gz.running", &a);
    bench.assert_log("b.eventlog.gz.running", &b);
}

#[test]
fn a_clone_continues_what_the_dropped_one_began() {
    let mut bench = Bench::new();
    let x = joined("x", 1);
    let job = a_job("j");
    bench.write(&[x.clone(), job[0].clone()]).unwrap();
    bench.replace();
    bench.write(&job[1..]).unwrap();
    let [queued, stage, task, end] = &job[..] else { unreachable!() };
    bench.assert_log("j.eventlog.gz", &[queued, stage, &x, task, end].map(Arc::clone));
    assert_eq!(members(&bench.bytes("j.eventlog.gz")), 2);
}

#[test]
fn two_clones_do_not_write_the_same_log() {
    let mut bench = Bench::new();
    let mut other = bench.sink.clone();
    bench.write(&[queued("j")]).unwrap();
    let error = block_on(other.write(&[stage_start("j", 1)])).unwrap_err();
    assert!(error.to_string().contains("is being written by another clone"), "{error}");
    bench.write(&[job_end("j")]).unwrap();
    bench.assert_log("j.eventlog.gz", &[queued("j"), job_end("j")]);
}

#[test]
fn a_log_that_was_dropped_torn_is_not_continued() {
    let mut bench = Bench::new();
    bench.write(&[queued("j")]).unwrap();
    faults::leave_room(4);
    bench.replace();
    faults::heal();
    for event in [stage_start("j", 1), job_end("j")] {
        let error = bench.write(&[event]).unwrap_err();
        assert!(matches!(error, SinkError::Rejected { .. }));
        assert!(error.to_string().contains("lost its end"), "{error}");
    }
    assert_eq!(bench.bytes("j.eventlog.gz.running").len(), 4);
}

#[test]
fn events_without_a_place_are_rejected() {
    let mut bench = Bench::new();
    let no_job = Event::from_json_line(r#"{"ev":"StageStart","version":1,"data":{"stage_id":1,"partitions":1}}"#);
    let error = bench.write(&[Arc::new(no_job.unwrap().unwrap())]).unwrap_err();
    assert!(matches!(error, SinkError::Rejected { .. }));
    assert_eq!(error.to_string(), "StageStart event names no job, so there is no event log for it");

    let error = bench.write(&[queued(&"x".repeat(1000))]).unwrap_err();
    assert!(matches!(error, SinkError::Rejected { .. }));
    assert!(error.to_string().contains("too long for the name of an event log"), "{error}");
    assert!(bench.names().is_empty());
}

#[test]
fn a_directory_that_can_not_be_used_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let new = |path: &Path| FileSink::new(FileSinkConfig::new(path));
    assert_eq!(
        new(Path::new("")).unwrap_err().to_string(),
        "the event log directory is an empty path: name a directory"
    );

    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert_eq!(
        new(&file).unwrap_err().to_string(),
        format!(
            "event log directory {} is not a directory: name another, or move the file that has its name away",
            file.display()
        )
    );
    let below = file.join("logs");
    assert_eq!(
        new(&below).unwrap_err().to_string(),
        format!(
            "could not create event log directory {}: Not a directory (os error 20); \
             create it, writable for the scheduler's user, or name another",
            below.display()
        )
    );
    faults::fail(Operation::Create, EACCES);
    assert_eq!(
        new(directory.path()).unwrap_err().to_string(),
        format!(
            "event log directory {} is not usable: can't create files there: Permission denied (os error 13); \
             let the scheduler's user read it and write to it, or name another",
            directory.path().display()
        )
    );
    faults::heal();
    assert!(new(directory.path()).is_ok());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "the probe is removed");
}

#[test]
fn a_boxed_clone_is_empty() {
    let mut bench = Bench::new();
    bench.write(&[queued("j")]).unwrap();
    let boxed: Box<dyn EventSink> = Box::new(bench.sink.clone());
    assert!(format!("{:?}", boxed.clone()).contains("open_logs: 0"));
    assert!(format!("{:?}", bench.sink).contains("open_logs: 1"));
}

/// Random events of some jobs, a disk that fails at any byte, few files, and sinks that are replaced: each log must have
/// the events of its job that were taken over, once and in order.
#[test]
fn whatever_happens_logs_have_their_events_once_and_in_order() {
    for seed in 0..24 {
        let compression = if seed % 4 == 0 { Compression::None } else { Compression::default() };
        let mut bench =
            Bench::with(|config| config.with_compression(compression).with_max_open_files(2).with_flush_bytes(3000));
        let mut state: u64 = seed;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let jobs = ["a", "b", "c", "d"];
        let mut expected = jobs.map(|_| Vec::new());
        for step in 0..150 {
            match random(12) {
                0 => faults::leave_room(usize::try_from(random(3000)).unwrap()),
                1 => faults::fail(Operation::Append, EACCES),
                2 => drop(block_on(bench.sink.flush())),
                3 => {
                    faults::heal();
                    bench.replace();
                }
                _ => {
                    let drawn: Vec<_> = (0..1 + random(4))
                        .map(|_| (usize::try_from(random(4)).unwrap(), usize::try_from(random(2000)).unwrap()))
                        .collect();
                    let batch: Vec<_> =
                        drawn.into_iter().map(|(job, bytes)| (job, bulky(jobs[job], step, bytes))).collect();
                    let mut events: Vec<_> = batch.iter().map(|(_, event)| event.clone()).collect();
                    while let Err(error) = bench.write(&events) {
                        assert!(matches!(error, SinkError::Transient { .. }), "{error}");
                        events.drain(..error.written());
                        if random(3) == 0 {
                            faults::heal();
                        }
                    }
                    for (job, event) in batch {
                        expected[job].push(event);
                    }
                }
            }
        }
        for (job, mut events) in jobs.into_iter().zip(expected) {
            events.push(job_end(job));
            for step in [Operation::Write, Operation::Sync, Operation::Rename, Operation::SyncDirectory] {
                faults::fail(step, EIO);
                assert!(bench.write(&events[events.len() - 1..]).is_err());
            }
            faults::heal();
            bench.write(&events[events.len() - 1..]).unwrap();
            let bytes = bench.bytes(&format!("{job}{}", compression.extension()));
            let contents = if compression == Compression::None { bytes } else { unzip(&bytes) };
            assert!(contents == lines_of(&events), "job {job} with seed {seed}");
        }
    }
}
