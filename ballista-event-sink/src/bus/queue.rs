//! One sink's queue: two lanes merged by sequence number, and the counters that belong to them.
//!
//! Everything is under one mutex, held for a few instructions at a time, so the counters always add up. The worker is
//! woken only when it sleeps: a busy sink costs its emitters no system call.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{Notify, oneshot};

use super::policy::OverflowPolicy;
use super::stats::{KindCounts, LastError, SinkState, SinkStats};
use crate::event::{Event, EventKind};

/// The most events handed to a sink at a time. Enough to fill a compressor's window many times over, few enough that a
/// batch that fails costs little.
const MAX_BATCH: usize = 1024;

/// Jobs whose losses are remembered for their JobEnd. Far more than run at a time; a bound all the same, since a job
/// whose JobEnd never comes would be remembered for ever.
const MAX_JOBS_WITH_LOSSES: usize = 16_384;

/// Drops are warned of at most this often.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

pub(super) struct Queue {
    name: String,
    capacity: usize,
    policy: OverflowPolicy,
    state: Mutex<State>,
    /// Wakes the worker.
    work: Notify,
    /// Wakes emitters that wait for room under [`OverflowPolicy::Block`].
    room: Condvar,
}

struct State {
    timeline: VecDeque<Entry>,
    /// The reserved lane: JobEnd, never refused while the sink lives.
    terminal: VecDeque<Entry>,
    flushes: VecDeque<(u64, oneshot::Sender<FlushOutcome>)>,
    next_seq: u64,
    /// Events in the sink's hands, and since when the oldest of them has waited.
    in_hand: u64,
    in_hand_since: Option<Instant>,
    /// What each running job lost so far, to be told by its JobEnd.
    losses: HashMap<Arc<str>, KindCounts>,
    phase: Phase,
    worker_sleeps: bool,
    /// Under [`OverflowPolicy::Block`]: a wait timed out, and the sink has taken nothing since.
    stalled: bool,
    emitted: u64,
    written: u64,
    failed: u64,
    dropped: KindCounts,
    panics: u64,
    retrying: bool,
    last_error: Option<LastError>,
    last_warning: Option<Instant>,
}

struct Entry {
    seq: u64,
    queued: Instant,
    event: Arc<Event>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Nothing more is accepted; what waits is still handed over.
    Draining,
    /// The sink gets nothing more, whatever waits.
    Retired,
    Closed,
}

/// How a flush that someone asked for went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlushOutcome {
    Flushed,
    Failed,
}

/// What the worker does next.
pub(super) enum Work {
    Write(Vec<Arc<Event>>),
    Flush(oneshot::Sender<FlushOutcome>),
    /// Nothing to do until the time given is over.
    Idle,
    /// The queue is empty and closed.
    Done,
    /// The sink was given up.
    Abandoned,
}

impl Queue {
    pub(super) fn new(name: String, capacity: usize, policy: OverflowPolicy) -> Self {
        Self {
            name,
            capacity,
            policy,
            state: Mutex::new(State {
                timeline: VecDeque::new(),
                terminal: VecDeque::new(),
                flushes: VecDeque::new(),
                next_seq: 0,
                in_hand: 0,
                in_hand_since: None,
                losses: HashMap::new(),
                phase: Phase::Open,
                worker_sleeps: false,
                stalled: false,
                emitted: 0,
                written: 0,
                failed: 0,
                dropped: KindCounts::default(),
                panics: 0,
                retrying: false,
                last_error: None,
                last_warning: None,
            }),
            work: Notify::new(),
            room: Condvar::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// No code under the lock panics; if some ever did, the counters would still be the best there is.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an event in, or drops and counts it.
    pub(super) fn push(&self, event: Arc<Event>, now: Instant) {
        let mut state = self.lock();
        state.emitted += 1;
        let dropped = match (state.phase, event.kind()) {
            (Phase::Open, EventKind::JobEnd) => {
                let entry = state.entry(event, now);
                state.terminal.push_back(entry);
                None
            }
            (Phase::Open, _) => {
                if let OverflowPolicy::Block { limit } = self.policy {
                    state = self.wait_for_room(state, limit);
                }
                self.push_timeline(&mut state, event, now)
            }
            (Phase::Draining | Phase::Retired | Phase::Closed, _) => Some(event),
        };
        let warning = dropped.and_then(|event| {
            state.count_dropped(&event);
            // A retired sink was announced when it was retired.
            (state.phase == Phase::Open).then(|| state.due_warning(now)).flatten()
        });
        let wake = std::mem::take(&mut state.worker_sleeps);
        drop(state);
        if wake {
            self.work.notify_one();
        }
        if let Some(dropped_so_far) = warning {
            tracing::warn!(
                sink = self.name,
                dropped_so_far,
                capacity = self.capacity,
                "event queue is full: the sink does not keep up, events are dropped"
            );
        }
    }

    /// Returns the event that had to give way, if one had to.
    fn push_timeline(&self, state: &mut State, event: Arc<Event>, now: Instant) -> Option<Arc<Event>> {
        let full = state.timeline.len() >= self.capacity;
        // Block may have waited, and the queue may have been closed meanwhile.
        if state.phase != Phase::Open {
            return Some(event);
        }
        let evicted = match self.policy {
            OverflowPolicy::DropNewest | OverflowPolicy::Block { .. } if full => return Some(event),
            OverflowPolicy::DropOldest if full => state.timeline.pop_front().map(|entry| entry.event),
            _ => None,
        };
        let entry = state.entry(event, now);
        state.timeline.push_back(entry);
        evicted
    }

    fn wait_for_room<'a>(&'a self, mut state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        let full = |state: &mut State| state.phase == Phase::Open && state.timeline.len() >= self.capacity;
        if full(&mut state) && !state.stalled {
            if std::mem::take(&mut state.worker_sleeps) {
                self.work.notify_one();
            }
            let (guard, timeout) =
                self.room.wait_timeout_while(state, limit, full).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.stalled = timeout.timed_out();
        }
        state
    }

    /// Asks for a flush after all that is queued now.
    pub(super) fn request_flush(&self) -> oneshot::Receiver<FlushOutcome> {
        let (reply, receiver) = oneshot::channel();
        let mut state = self.lock();
        match state.phase {
            Phase::Open | Phase::Draining => {
                let seq = state.take_seq();
                state.flushes.push_back((seq, reply));
            }
            // The reply is dropped, which the receiver sees as a failure.
            Phase::Retired | Phase::Closed => {}
        }
        let wake = std::mem::take(&mut state.worker_sleeps);
        drop(state);
        if wake {
            self.work.notify_one();
        }
        receiver
    }

    /// Waits for work, at most until `wake_at`.
    pub(super) async fn next(&self, wake_at: Option<Instant>) -> Work {
        loop {
            {
                let mut state = self.lock();
                if let Some(work) = state.take_work() {
                    drop(state);
                    self.room.notify_all();
                    return work;
                }
                state.worker_sleeps = true;
            }
            // A wake-up between here and the await is kept by `notify_one`.
            match wake_at {
                None => self.work.notified().await,
                Some(at) => {
                    if tokio::time::timeout_at(at.into(), self.work.notified()).await.is_err() {
                        self.lock().worker_sleeps = false;
                        return Work::Idle;
                    }
                }
            }
        }
    }

    /// Waits out a pause before the next try, unless the sink is given up or told to drain meanwhile.
    pub(super) async fn pause(&self, length: Duration) {
        let draining = self.lock().phase != Phase::Open;
        // While draining there is a deadline: the pauses stay short.
        let length = if draining { length.min(Duration::from_millis(100)) } else { length };
        // Only a change of phase notifies here: emitters wake the worker when it sleeps in `next`, and it doesn't.
        let _ = tokio::time::timeout(length, self.work.notified()).await;
    }

    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.lock().phase, Phase::Retired | Phase::Closed)
    }

    /// `count` events in the sink's hands were taken over.
    pub(super) fn record_written(&self, count: usize) {
        let mut state = self.lock();
        let count = state.release(count);
        state.written += count;
        if count > 0 {
            state.retrying = false;
        }
    }

    /// These events in the sink's hands were lost.
    pub(super) fn record_failed(&self, events: &[Arc<Event>]) {
        let mut state = self.lock();
        let count = state.release(events.len());
        state.failed += count;
        if count > 0 {
            for event in events {
                state.note_loss(event);
            }
        }
    }

    pub(super) fn record_panic(&self) {
        self.lock().panics += 1;
    }

    /// Notes an error, and whether the sink is going to be tried again. Returns true if it was healthy before.
    pub(super) fn record_error(&self, message: String, retrying: bool) -> bool {
        let mut state = self.lock();
        let was_healthy = !state.retrying;
        state.retrying = retrying;
        state.last_error = Some(LastError { message, at: SystemTime::now() });
        was_healthy
    }

    /// Accepts no more events; what waits is still handed over.
    pub(super) fn drain(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Draining;
        }
        state.worker_sleeps = false;
        drop(state);
        self.work.notify_one();
        self.room.notify_all();
    }

    /// Gives the sink up: what waits is dropped, what it has in hand has failed.
    pub(super) fn retire(&self) {
        self.end(Phase::Retired);
    }

    /// The sink was closed.
    pub(super) fn close(&self) {
        self.end(Phase::Closed);
    }

    fn end(&self, phase: Phase) {
        let mut state = self.lock();
        if !matches!(state.phase, Phase::Retired | Phase::Closed) {
            state.phase = phase;
        }
        state.failed += state.in_hand;
        state.in_hand = 0;
        state.in_hand_since = None;
        let waiting: Vec<_> = state.timeline.drain(..).collect();
        let terminal: Vec<_> = state.terminal.drain(..).collect();
        for entry in waiting.iter().chain(&terminal) {
            state.dropped.add(entry.event.kind());
        }
        state.losses.clear();
        state.flushes.clear();
        state.worker_sleeps = false;
        drop(state);
        self.work.notify_one();
        self.room.notify_all();
    }

    pub(super) fn stats(&self) -> SinkStats {
        let state = self.lock();
        let oldest = [
            state.in_hand_since,
            state.timeline.front().map(|entry| entry.queued),
            state.terminal.front().map(|entry| entry.queued),
        ];
        SinkStats {
            name: self.name.clone(),
            state: match state.phase {
                Phase::Retired => SinkState::Retired,
                Phase::Closed => SinkState::Closed,
                Phase::Open | Phase::Draining if state.retrying => SinkState::Retrying,
                Phase::Open | Phase::Draining => SinkState::Healthy,
            },
            emitted: state.emitted,
            written: state.written,
            dropped: state.dropped.to_map(),
            failed: state.failed,
            panics: state.panics,
            waiting: state.in_hand + (state.timeline.len() + state.terminal.len()) as u64,
            capacity: self.capacity,
            lag: oldest.into_iter().flatten().min().map_or(Duration::ZERO, |since| since.elapsed()),
            last_error: state.last_error.clone(),
        }
    }
}

impl State {
    fn take_seq(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    fn entry(&mut self, event: Arc<Event>, queued: Instant) -> Entry {
        Entry { seq: self.take_seq(), queued, event }
    }

    /// What there is to do, if anything.
    fn take_work(&mut self) -> Option<Work> {
        if matches!(self.phase, Phase::Retired | Phase::Closed) {
            return Some(Work::Abandoned);
        }
        let mut batch = Vec::new();
        while batch.len() < MAX_BATCH {
            let lane = match (self.timeline.front(), self.terminal.front()) {
                (Some(timeline), Some(terminal)) if terminal.seq < timeline.seq => &mut self.terminal,
                (Some(_), _) => &mut self.timeline,
                (None, Some(_)) => &mut self.terminal,
                (None, None) => break,
            };
            let flush_first = |entry: &Entry| self.flushes.front().is_some_and(|(seq, _)| *seq < entry.seq);
            if lane.front().is_some_and(flush_first) {
                break;
            }
            let Some(entry) = lane.pop_front() else { break };
            if batch.is_empty() {
                self.in_hand_since = Some(entry.queued);
            }
            batch.push(self.with_losses(entry.event));
        }
        if !batch.is_empty() {
            self.in_hand = batch.len() as u64;
            self.stalled = false;
            return Some(Work::Write(batch));
        }
        if let Some((_, reply)) = self.flushes.pop_front() {
            return Some(Work::Flush(reply));
        }
        (self.phase == Phase::Draining).then_some(Work::Done)
    }

    /// A JobEnd tells what its job lost. Looked up only now, since a drop can still happen while it waits.
    fn with_losses(&mut self, event: Arc<Event>) -> Arc<Event> {
        if self.losses.is_empty() || event.kind() != EventKind::JobEnd {
            return event;
        }
        let Some(losses) = event.job_key().and_then(|job| self.losses.remove(job)) else {
            return event;
        };
        let mut event = Arc::unwrap_or_clone(event);
        event.set_dropped_events(losses.to_map());
        Arc::new(event)
    }

    fn count_dropped(&mut self, event: &Event) {
        self.dropped.add(event.kind());
        self.note_loss(event);
    }

    fn note_loss(&mut self, event: &Event) {
        if event.kind() == EventKind::JobEnd {
            return;
        }
        let Some(job) = event.job_key() else { return };
        if let Some(losses) = self.losses.get_mut(job) {
            losses.add(event.kind());
        } else if self.losses.len() < MAX_JOBS_WITH_LOSSES {
            let mut losses = KindCounts::default();
            losses.add(event.kind());
            self.losses.insert(Arc::clone(job), losses);
        }
    }

    fn due_warning(&mut self, now: Instant) -> Option<u64> {
        let due = self.last_warning.is_none_or(|last| now.duration_since(last) >= WARN_INTERVAL);
        due.then(|| {
            self.last_warning = Some(now);
            self.dropped.to_map().values().sum()
        })
    }

    /// Takes events out of the sink's hands. None are there once it was given up, when all were counted as failed.
    fn release(&mut self, count: usize) -> u64 {
        let released = self.in_hand.min(count as u64);
        self.in_hand -= released;
        if self.in_hand == 0 {
            self.in_hand_since = None;
        }
        released
    }
}
