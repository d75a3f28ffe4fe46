//! The bus against its contract: who loses what, and that it is counted.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ballista_event_sink::bus::{BuildError, EventBus, ShutdownReport, SinkState, SinkStats};
use ballista_event_sink::conformance::{self, sample_job};
use ballista_event_sink::event::DroppedEvents;
use ballista_event_sink::{Event, EventData, EventKind, EventSink, OverflowPolicy, SinkError, async_trait};

const PATIENCE: Duration = Duration::from_secs(60);

/// A gate that a sink waits at, on its own thread.
#[derive(Debug, Clone, Default)]
struct Gate {
    state: Arc<(Mutex<(bool, usize)>, Condvar)>,
}

impl Gate {
    /// Waits until the gate is open.
    fn pass(&self) {
        let (state, changed) = &*self.state;
        let mut state = state.lock().unwrap();
        state.1 += 1;
        changed.notify_all();
        drop(changed.wait_while(state, |(open, _)| !*open).unwrap());
    }

    fn open(&self) {
        let (state, changed) = &*self.state;
        state.lock().unwrap().0 = true;
        changed.notify_all();
    }

    /// Waits until someone waits at the gate.
    fn someone_waits(&self) {
        let (state, changed) = &*self.state;
        drop(changed.wait_while(state.lock().unwrap(), |(_, waiting)| *waiting == 0).unwrap());
    }
}

type Script = Arc<dyn Fn(&[Arc<Event>], usize) -> Result<(), SinkError> + Send + Sync>;

/// Remembers what it takes over; a script says how each call ends.
#[derive(Clone)]
struct Scripted {
    taken: Arc<Mutex<Vec<Arc<Event>>>>,
    calls: Arc<AtomicUsize>,
    flushes: Arc<AtomicUsize>,
    closed: Arc<AtomicBool>,
    script: Script,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

impl Scripted {
    fn new(script: impl Fn(&[Arc<Event>], usize) -> Result<(), SinkError> + Send + Sync + 'static) -> Self {
        Self {
            taken: Arc::default(),
            calls: Arc::default(),
            flushes: Arc::default(),
            closed: Arc::default(),
            script: Arc::new(script),
        }
    }

    fn taking_all() -> Self {
        Self::new(|_, _| Ok(()))
    }

    fn behind(gate: &Gate) -> Self {
        let gate = gate.clone();
        Self::new(move |_, _| {
            gate.pass();
            Ok(())
        })
    }

    fn taken(&self) -> Vec<Arc<Event>> {
        self.taken.lock().unwrap().clone()
    }

    fn kinds(&self) -> Vec<EventKind> {
        self.taken().iter().map(|event| event.kind()).collect()
    }
}

#[async_trait]
impl EventSink for Scripted {
    async fn write(&mut self, batch: &[Arc<Event>]) -> Result<(), SinkError> {
        let outcome = (self.script)(batch, self.calls.fetch_add(1, Ordering::SeqCst));
        let taken = outcome.as_ref().map_or_else(|error| error.written(), |()| batch.len());
        self.taken.lock().unwrap().extend(batch[..taken].iter().cloned());
        outcome
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        self.closed.store(true, Ordering::SeqCst);
        Ok(())
    }
}

fn emit(bus: &EventBus, events: &[Arc<Event>]) {
    for event in events {
        bus.emit(Event::clone(event));
    }
}

fn adds_up(stats: &SinkStats) {
    let parts = stats.written + stats.dropped_total() + stats.failed + stats.waiting;
    assert_eq!(stats.emitted, parts, "{stats:?}");
}

fn only(report: &ShutdownReport) -> &SinkStats {
    let [sink] = &report.sinks[..] else { panic!("{report}") };
    adds_up(&sink.stats);
    assert_eq!(sink.stats.waiting, 0, "{report}");
    &sink.stats
}

fn dropped_of(end: &Event) -> DroppedEvents {
    let EventData::JobEnd(end) = end.data() else { panic!("{end:?}") };
    end.dropped_events.clone()
}

fn map(counts: &[(&str, u64)]) -> DroppedEvents {
    counts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

#[tokio::test]
async fn every_sink_gets_every_event_in_order() {
    let sinks = [Scripted::taking_all(), Scripted::taking_all()];
    let builder = EventBus::builder().sink("a", sinks[0].clone()).sink("b", sinks[1].clone());
    let (bus, guard) = builder.build().unwrap();
    let job = sample_job("j", 5000);
    emit(&bus, &job);
    let report = guard.shutdown(PATIENCE).await;
    assert!(report.is_clean(), "{report}");
    for sink in &sinks {
        assert_eq!(sink.taken(), job);
        assert!(sink.flushes.load(Ordering::SeqCst) > 0 || sink.closed.load(Ordering::SeqCst));
        assert!(sink.closed.load(Ordering::SeqCst));
    }
    assert_eq!(
        report.to_string(),
        "event sink a: 5005 of 5005 events written; event sink b: 5005 of 5005 events written"
    );
}

/// Fills the queue of a sink that hangs in its first batch, lets it go, and returns what it got of the job `j`.
async fn overflow(policy: OverflowPolicy) -> (Vec<Arc<Event>>, SinkStats) {
    let gate = Gate::default();
    let sink = Scripted::behind(&gate);
    let builder = EventBus::builder().queue_capacity(4).overflow_policy(policy).sink("slow", sink.clone());
    let (bus, guard) = builder.build().unwrap();
    emit(&bus, &sample_job("first", 0)[..1]);
    gate.someone_waits();
    // JobQueued, JobStart, StageStart, 10 × TaskEnd, StageEnd, JobEnd: 14 for 4 places, and JobEnd beside them.
    emit(&bus, &sample_job("j", 10));
    adds_up(&bus.stats()[0]);
    gate.open();
    let report = guard.shutdown(PATIENCE).await;
    let stats = only(&report).clone();
    (sink.taken().split_off(1), stats)
}

#[tokio::test]
async fn drop_newest_keeps_the_beginning() {
    let (taken, stats) = overflow(OverflowPolicy::DropNewest).await;
    let kinds: Vec<_> = taken.iter().map(|event| event.kind()).collect();
    use EventKind::*;
    assert_eq!(kinds, [JobQueued, JobStart, StageStart, TaskEnd, JobEnd]);
    let lost = map(&[("StageEnd", 1), ("TaskEnd", 9)]);
    assert_eq!(dropped_of(taken.last().unwrap()), lost);
    assert_eq!(stats.dropped, lost);
}

#[tokio::test]
async fn drop_oldest_keeps_the_end() {
    let (taken, stats) = overflow(OverflowPolicy::DropOldest).await;
    let kinds: Vec<_> = taken.iter().map(|event| event.kind()).collect();
    use EventKind::*;
    assert_eq!(kinds, [TaskEnd, TaskEnd, TaskEnd, StageEnd, JobEnd]);
    let lost = map(&[("JobQueued", 1), ("JobStart", 1), ("StageStart", 1), ("TaskEnd", 7)]);
    assert_eq!(dropped_of(taken.last().unwrap()), lost);
    assert_eq!(stats.dropped, lost);
}

#[tokio::test]
async fn block_gives_up_after_its_limit_and_once_for_a_stall() {
    let (taken, stats) = overflow(OverflowPolicy::Block { limit: Duration::from_millis(1) }).await;
    assert_eq!(taken.len(), 5);
    assert_eq!(stats.dropped_total(), 10);
}

#[tokio::test]
async fn block_loses_nothing_while_the_sink_goes_on() {
    let sink = Scripted::taking_all();
    let policy = OverflowPolicy::Block { limit: PATIENCE };
    let (bus, guard) =
        EventBus::builder().queue_capacity(1).overflow_policy(policy).sink("s", sink.clone()).build().unwrap();
    let job = sample_job("j", 2000);
    // Emitting blocks its thread, so it has one of its own.
    let emitting = std::thread::spawn(move || {
        emit(&bus, &job);
        job
    });
    let job = tokio::task::spawn_blocking(move || emitting.join().unwrap()).await.unwrap();
    assert!(guard.shutdown(PATIENCE).await.is_clean());
    assert_eq!(sink.taken(), job);
}

#[tokio::test]
async fn job_end_is_kept_by_a_sink_that_hangs_and_stays_last() {
    let gate = Gate::default();
    let sink = Scripted::behind(&gate);
    let (bus, guard) = EventBus::builder().queue_capacity(1).sink("slow", sink.clone()).build().unwrap();
    let jobs: Vec<_> = (0..500).map(|i| sample_job(&format!("j{i}"), 3)).collect();
    emit(&bus, &jobs[0][..1]);
    gate.someone_waits();
    jobs.iter().for_each(|job| emit(&bus, job));
    gate.open();
    let report = guard.shutdown(PATIENCE).await;
    let stats = only(&report);
    assert!(!stats.dropped.contains_key("JobEnd"));
    let mut last = HashMap::new();
    for event in sink.taken() {
        last.insert(event.job_id().unwrap().to_owned(), event.kind());
    }
    assert_eq!(last.len(), 500);
    assert!(last.values().all(|kind| *kind == EventKind::JobEnd));
}

#[tokio::test]
async fn a_transient_error_is_tried_again_from_where_it_stopped() {
    let sink = Scripted::new(|batch, call| match call {
        0 => Err(SinkError::transient("disk full")),
        1 => Err(SinkError::transient("disk full").after(batch.len().min(2))),
        _ => Ok(()),
    });
    let pause = Duration::from_millis(1);
    let builder = EventBus::builder().retry_pauses(pause, pause);
    let (bus, guard) = builder.sink("s", sink.clone()).build().unwrap();
    let job = sample_job("j", 20);
    emit(&bus, &job);
    bus.flush(PATIENCE).await.unwrap();
    let stats = &bus.stats()[0];
    assert_eq!((stats.state, stats.last_error.as_ref().unwrap().message.as_str()), (SinkState::Healthy, "disk full"));
    assert!(guard.shutdown(PATIENCE).await.is_clean());
    assert_eq!(sink.taken(), job);
}

#[tokio::test]
async fn a_rejected_event_is_counted_and_told_by_its_job_end() {
    let sink = Scripted::new(|batch, _| match batch.iter().position(|event| event.kind() == EventKind::StageStart) {
        Some(at) => Err(SinkError::rejected("too large").after(at)),
        None => Ok(()),
    });
    let gate = Gate::default();
    let behind = gate.clone();
    let script = Arc::clone(&sink.script);
    let sink = Scripted {
        script: Arc::new(move |batch: &[Arc<Event>], call| {
            behind.pass();
            script(batch, call)
        }),
        ..sink
    };
    let (bus, guard) = EventBus::builder().sink("s", sink.clone()).build().unwrap();
    let job = sample_job("j", 1);
    emit(&bus, &job[..3]);
    gate.someone_waits();
    gate.open();
    bus.flush(PATIENCE).await.unwrap();
    emit(&bus, &job[3..]);
    let report = guard.shutdown(PATIENCE).await;
    assert_eq!(only(&report).failed, 1);
    assert_eq!(sink.taken().len(), job.len() - 1);
    assert_eq!(dropped_of(sink.taken().last().unwrap()), map(&[("StageStart", 1)]));
}

#[tokio::test]
async fn a_fatal_error_retires_the_sink_and_no_other() {
    let broken = Scripted::new(|_, _| Err(SinkError::fatal("pipe closed")));
    let healthy = Scripted::taking_all();
    let builder = EventBus::builder().sink("broken", broken.clone()).sink("healthy", healthy.clone());
    let (bus, guard) = builder.build().unwrap();
    let job = sample_job("j", 100);
    emit(&bus, &job);
    assert_eq!(bus.flush(PATIENCE).await.unwrap_err().sinks, ["broken"]);
    assert_eq!(bus.stats()[0].state, SinkState::Retired);
    emit(&bus, &job);
    let report = guard.shutdown(PATIENCE).await;
    for sink in &report.sinks {
        adds_up(&sink.stats);
    }
    let lost = &report.sinks[0].stats;
    assert_eq!((lost.written, lost.failed + lost.dropped_total()), (0, 2 * job.len() as u64));
    assert!(!broken.closed.load(Ordering::SeqCst), "nothing is called after a fatal error");
    assert!(report.sinks[1].is_clean());
    assert_eq!(healthy.taken().len(), 2 * job.len());
}

#[tokio::test]
async fn a_panic_costs_its_batch_and_three_in_a_row_the_sink() {
    let sink = Scripted::new(|_, call| match call {
        1 => Ok(()),
        _ => panic!("call {call}"),
    });
    let (bus, guard) = EventBus::builder().sink("s", sink.clone()).build().unwrap();
    let job = sample_job("j", 0);
    for (event, state) in job.iter().zip([
        SinkState::Healthy, // panics
        SinkState::Healthy, // writes
        SinkState::Healthy, // panics
        SinkState::Healthy, // panics
    ]) {
        emit(&bus, std::slice::from_ref(event));
        bus.flush(PATIENCE).await.unwrap();
        assert_eq!(bus.stats()[0].state, state);
    }
    emit(&bus, &job[..1]); // panics for the third time in a row
    bus.flush(PATIENCE).await.unwrap_err();
    let report = guard.shutdown(PATIENCE).await;
    let stats = only(&report);
    assert_eq!((stats.state, stats.panics, stats.written, stats.failed), (SinkState::Retired, 4, 1, 4));
    assert_eq!(sink.kinds(), [EventKind::JobStart]);
}

#[tokio::test]
async fn a_sink_that_hangs_is_given_up_at_the_deadline_and_all_is_counted() {
    let gate = Gate::default();
    let healthy = Scripted::taking_all();
    let builder = EventBus::builder().sink("hung", Scripted::behind(&gate)).sink("healthy", healthy.clone());
    let (bus, guard) = builder.build().unwrap();
    let job = sample_job("j", 10);
    emit(&bus, &job[..1]);
    gate.someone_waits();
    emit(&bus, &job[1..]);
    let report = guard.shutdown(Duration::from_millis(1)).await;
    let hung = &report.sinks[0];
    adds_up(&hung.stats);
    assert_eq!((hung.stats.written, hung.stats.failed, hung.stats.dropped_total()), (0, 1, job.len() as u64 - 1));
    assert!(hung.problem.as_deref().unwrap().contains("given up"), "{report}");
    assert!(!report.is_clean());
    gate.open();
    // Emitting into a bus that is gone is harmless.
    emit(&bus, &job);
    adds_up(&bus.stats()[0]);
}

#[tokio::test]
async fn shutdown_waits_for_events_that_are_being_made() {
    let sink = Scripted::taking_all();
    let (bus, guard) = EventBus::builder().sink("s", sink.clone()).build().unwrap();
    let hold = bus.hold();
    let job = sample_job("j", 0);
    let last = job.last().cloned().unwrap();
    let late = bus.clone();
    let shutdown = tokio::spawn(guard.shutdown(PATIENCE));
    tokio::task::yield_now().await;
    late.emit(Event::clone(&last));
    drop(hold);
    assert!(shutdown.await.unwrap().is_clean());
    assert_eq!(sink.kinds(), [EventKind::JobEnd]);
}

#[tokio::test]
async fn an_event_that_is_never_made_does_not_hold_up_the_shutdown_for_ever() {
    let (bus, guard) = EventBus::builder().sink("s", Scripted::taking_all()).build().unwrap();
    let _hold = bus.hold();
    let report = guard.shutdown(Duration::from_millis(1)).await;
    assert_eq!(report.unfinished, 1);
    assert!(report.to_string().ends_with("1 jobs ended without their JobEnd"), "{report}");
}

#[test]
fn a_guard_that_is_dropped_writes_what_it_can_without_a_runtime() {
    let sink = Scripted::taking_all();
    let (bus, guard) = EventBus::builder().sink("s", sink.clone()).build().unwrap();
    let job = sample_job("j", 10);
    emit(&bus, &job);
    drop(guard);
    assert_eq!(sink.taken(), job);
    assert_eq!(bus.stats()[0].state, SinkState::Closed);
}

#[test]
fn a_bus_that_can_not_be_is_refused() {
    let twice = EventBus::builder().sink("a", Scripted::taking_all()).sink("a", Scripted::taking_all()).build();
    assert!(matches!(twice, Err(BuildError::DuplicateSink { name }) if name == "a"));
    let empty = EventBus::builder().queue_capacity(0).sink("a", Scripted::taking_all()).build();
    assert!(matches!(empty, Err(BuildError::ZeroCapacity)));
}

#[tokio::test]
async fn a_disabled_bus_does_nothing() {
    let bus = EventBus::disabled();
    assert!(!bus.is_enabled());
    emit(&bus, &sample_job("j", 1));
    bus.flush(PATIENCE).await.unwrap();
    assert!(bus.stats().is_empty());
}

#[tokio::test]
async fn scripted_sinks_conform() {
    conformance::check(|| Box::new(Scripted::taking_all())).await;
}

mod model {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Emit(u8),
        EndJob(u8),
        Flush,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            8 => (0..4u8).prop_map(Step::Emit),
            2 => (0..4u8).prop_map(Step::EndJob),
            1 => Just(Step::Flush),
        ];
        prop::collection::vec(step, 0..200)
    }

    /// What a sink does with its nth call, at random.
    fn outcome(behaviour: u64, call: usize, batch: &[Arc<Event>]) -> Result<(), SinkError> {
        let dice = behaviour.rotate_left(call as u32 * 7) % 16;
        let taken = batch.len().min((dice % 5) as usize);
        match dice {
            0..=1 => Err(SinkError::transient("t").after(taken)),
            2..=3 if taken < batch.len() => Err(SinkError::rejected("r").after(taken)),
            4 => panic!("scripted"),
            _ => Ok(()),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Whatever a sink does and whatever overflows: the counters add up, nothing is taken over twice or out of
        /// order, and JobEnd reaches every sink that lives unless that sink itself lost it.
        #[test]
        fn counters_add_up(steps in steps(), capacity in 1usize..8, behaviour: u64, oldest: bool) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(async {
                let sink = Scripted::new(move |batch, call| outcome(behaviour, call, batch));
                let policy = if oldest { OverflowPolicy::DropOldest } else { OverflowPolicy::DropNewest };
                let pause = Duration::from_micros(100);
                let builder = EventBus::builder()
                    .queue_capacity(capacity)
                    .overflow_policy(policy)
                    .retry_pauses(pause, pause);
                let (bus, guard) = builder.sink("s", sink.clone()).build().unwrap();
                let mut emitted = Vec::new();
                for step in &steps {
                    match step {
                        Step::Emit(job) => emitted.push(sample_job(&format!("j{job}-{}", emitted.len()), 1)[3].clone()),
                        Step::EndJob(job) => {
                            emitted.push(sample_job(&format!("j{job}-{}", emitted.len()), 0)[4].clone());
                        }
                        Step::Flush => {
                            let _ = bus.flush(PATIENCE).await;
                            continue;
                        }
                    }
                    bus.emit(Event::clone(emitted.last().unwrap()));
                    adds_up(&bus.stats()[0]);
                }
                let report = guard.shutdown(PATIENCE).await;
                let stats = only(&report);
                assert_eq!(stats.emitted as usize, emitted.len());
                let taken = sink.taken();
                assert_eq!(stats.written as usize, taken.len());
                let ids = |events: &[Arc<Event>]| -> Vec<String> {
                    events.iter().map(|event| event.job_id().unwrap().to_owned()).collect()
                };
                let mut rest = ids(&emitted).into_iter();
                for id in ids(&taken) {
                    assert!(rest.any(|emitted| emitted == id), "{id} twice, or out of order");
                }
                if stats.state != SinkState::Retired {
                    assert!(!stats.dropped.contains_key("JobEnd"), "{report}");
                }
            });
        }
    }
}
