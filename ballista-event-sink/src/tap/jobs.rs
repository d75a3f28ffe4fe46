//! The jobs that are under way: what the tap must remember of each between two of the scheduler's calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::bus::EventBus;
use crate::event::{Event, EventData, JobPlanRevision, JobQueued, JobStart};

/// Jobs that were queued and have not ended.
pub(super) struct Jobs {
    bus: EventBus,
    /// Whether the scheduler's metrics collector tells when a job was submitted.
    submission_times: AtomicBool,
    jobs: Mutex<HashMap<Arc<str>, Job>>,
}

/// A job that is under way.
#[derive(Default)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) queued_at: u64,
    /// The job's JobStart, while its submission time is awaited.
    held_start: Option<JobStart>,
    pub(super) decorated: bool,
    /// The scheduler has applied the abort: what is still running was failed.
    aborted: bool,
}

/// The job's status, in a snapshot that the scheduler saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saved {
    Succeeded,
    Failed,
}

impl Jobs {
    pub(super) fn new(bus: EventBus) -> Self {
        Self { bus, submission_times: AtomicBool::new(false), jobs: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn expect_submission_times(&self) {
        self.submission_times.store(true, Ordering::Relaxed);
    }

    pub(super) fn queued(&self, queued: JobQueued) {
        let job_id: Arc<str> = queued.job_id.as_str().into();
        let job = Job { name: queued.job_name.clone(), queued_at: queued.queued_at, ..Job::default() };
        self.lock().insert(Arc::clone(&job_id), job);
        self.bus.emit(Event::of_job(job_id, EventData::JobQueued(queued)));
    }

    /// The job was planned. Its JobStart goes out once its submission time is known, or when the job's next event is
    /// due, whichever comes first.
    pub(super) fn planned(&self, mut start: JobStart) {
        let job_id: Arc<str> = start.job_id.as_str().into();
        let mut jobs = self.lock();
        let job = jobs.entry(Arc::clone(&job_id)).or_default();
        start.queued_at = job.queued_at;
        job.name.clone_from(&start.job_name);
        job.held_start = Some(start);
        if !self.submission_times.load(Ordering::Relaxed) {
            self.release_start(&job_id, job, None);
        }
    }

    /// Lets the JobStart go that is held, if one is.
    pub(super) fn start(&self, job_id: &str, submitted_at: Option<u64>) {
        let mut jobs = self.lock();
        if let Some((id, mut job)) = jobs.remove_entry(job_id) {
            self.release_start(&id, &mut job, submitted_at);
            jobs.insert(id, job);
        }
    }

    /// Emits under the lock, so that no event of the job can overtake its JobStart.
    fn release_start(&self, job_id: &Arc<str>, job: &mut Job, submitted_at: Option<u64>) {
        if let Some(mut start) = job.held_start.take() {
            if let Some(at) = submitted_at {
                start.submitted_at = at;
            }
            let submitted = self.submitted_plan(&start);
            self.bus.emit(Event::of_job(Arc::clone(job_id), EventData::JobStart(start)));
            if let Some(submitted) = submitted {
                self.bus.emit(Event::of_job(Arc::clone(job_id), EventData::JobPlanRevision(submitted)));
            }
        }
    }

    /// Revision 0 of an adaptive job's plan, if revisions are wanted.
    fn submitted_plan(&self, start: &JobStart) -> Option<JobPlanRevision> {
        let plan = start.physical_plan.as_ref().filter(|_| start.adaptive && self.bus.wants_plan_revisions())?;
        Some(JobPlanRevision {
            revision: 0,
            trigger_stage_id: None,
            at: start.submitted_at,
            plan: plan.clone(),
            changes: Vec::new(),
        })
    }

    /// Whether the job's JobStart went out, so that more of its events can.
    pub(super) fn is_started(&self, job_id: &str) -> bool {
        self.lock().get(job_id).is_none_or(|job| job.held_start.is_none())
    }

    /// Notes that the job's graph is decorated. False if the job has ended.
    pub(super) fn set_decorated(&self, job_id: &str) -> bool {
        self.lock().get_mut(job_id).map(|job| job.decorated = true).is_some()
    }

    /// Whether the job's graph is decorated, or the job has ended.
    pub(super) fn is_decorated(&self, job_id: &str) -> bool {
        self.lock().get(job_id).is_none_or(|job| job.decorated)
    }

    pub(super) fn set_aborted(&self, job_id: &str) {
        if let Some(job) = self.lock().get_mut(job_id) {
            job.aborted = true;
        }
    }

    /// Forgets a job whose snapshot was saved with a terminal status, if that snapshot is its last: then the job has
    /// ended, and only the first caller is told.
    ///
    /// A failed snapshot is not the last as long as the abort was not applied: an update that was under way when the
    /// job failed saves it with its stages still running.
    pub(super) fn end(&self, job_id: &str, saved: Saved) -> Option<(Arc<str>, Job)> {
        let mut jobs = self.lock();
        let job = jobs.get(job_id)?;
        if saved == Saved::Failed && job.decorated && !job.aborted {
            return None;
        }
        let (id, mut job) = jobs.remove_entry(job_id)?;
        self.release_start(&id, &mut job, None);
        Some((id, job))
    }
}
