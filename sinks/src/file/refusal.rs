//! Events that no log can take, and the jobs whose events are like that.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::name::{LogPaths, MAX_NAME};

/// Why no event of a job can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Its log is finished.
    Finished,
    /// A running log exists that this process did not begin.
    Foreign,
    /// Another clone of the sink writes the log.
    Held,
    /// The log lost its end.
    Torn,
    /// The running log disappeared.
    Removed,
    /// A finished log appeared while the running log was written.
    Taken,
    /// Its id is too long for a file name.
    TooLong,
}

impl Reason {
    /// The reason as text for an error.
    pub(super) fn explain(self, job_id: &str, paths: Option<&LogPaths>) -> String {
        let (running, finished) = match paths {
            Some(paths) => (paths.running.display().to_string(), paths.finished.display().to_string()),
            None => Default::default(),
        };
        match self {
            Self::Finished => format!(
                "job {job_id:?} has ended: its event log {finished} is finished, and an event that comes later is lost"
            ),
            Self::Foreign => format!(
                "event log {running} was not begun by this scheduler: another scheduler, or an earlier run, owns it; \
                 give each scheduler its own directory, or move the file away"
            ),
            Self::Held => format!(
                "event log {running} is being written by another clone of this file sink: register the sink only once"
            ),
            Self::Torn => format!(
                "event log {running} lost its end when its sink failed, and can't be continued; \
                 it is readable up to there"
            ),
            Self::Removed => format!(
                "event log {running} was removed while its job ran, and the rest of the job's events with it; \
                 leave logs alone until they are renamed"
            ),
            Self::Taken => format!(
                "event log {running} is complete and can't be renamed, because {finished} exists and is not \
                 overwritten; give each scheduler its own directory, or move one of the files away"
            ),
            Self::TooLong => format!(
                "job id {:?}… is too long for the name of an event log: \
                 it may have {MAX_NAME} bytes, and all but letters, digits, '.', '_' and '-' count three times",
                prefix(job_id, 32)
            ),
        }
    }
}

/// How many jobs are remembered. A job that is forgotten costs a look at the disk, and one more warning.
const CAPACITY: usize = 1024;

/// The jobs whose events were refused lately, so that the disk is not asked for every event.
#[derive(Debug, Default)]
pub(super) struct RefusedJobs {
    jobs: HashMap<Arc<str>, Refused>,
    oldest: VecDeque<Arc<str>>,
}

#[derive(Debug)]
struct Refused {
    reason: Reason,
    warned: bool,
}

impl RefusedJobs {
    pub(super) fn reason(&self, job_id: &str) -> Option<Reason> {
        self.jobs.get(&*key(job_id)).map(|refused| refused.reason)
    }

    /// From now on, events of this job are refused.
    pub(super) fn add(&mut self, job_id: &str, reason: Reason) {
        let key = key(job_id);
        if self.jobs.contains_key(&*key) {
            return;
        }
        if self.oldest.len() >= CAPACITY
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.jobs.remove(&oldest);
        }
        let key: Arc<str> = key.as_ref().into();
        self.oldest.push_back(Arc::clone(&key));
        self.jobs.insert(key, Refused { reason, warned: false });
    }

    /// Whether to warn of this job: true the first time.
    pub(super) fn warn(&mut self, job_id: &str) -> bool {
        match self.jobs.get_mut(&*key(job_id)) {
            Some(refused) => !std::mem::replace(&mut refused.warned, true),
            None => true,
        }
    }
}

/// What a job is remembered by: its id, but bounded. No id of a file name's length can look like a shortened one.
fn key(job_id: &str) -> std::borrow::Cow<'_, str> {
    if job_id.len() <= MAX_NAME { job_id.into() } else { format!("{}…", prefix(job_id, MAX_NAME)).into() }
}

/// The first characters of `text`, in at most `bytes` bytes.
fn prefix(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;
    use crate::file::Compression;

    #[test]
    fn texts() {
        let paths = LogPaths::new(Path::new("/logs"), Compression::default(), "j1").unwrap();
        let text = |reason: Reason| reason.explain("j1", Some(&paths));
        assert_eq!(
            text(Reason::Finished),
            "job \"j1\" has ended: its event log /logs/j1.eventlog.gz is finished, and an event that comes later is lost"
        );
        assert_eq!(
            text(Reason::Foreign),
            "event log /logs/j1.eventlog.gz.running was not begun by this scheduler: another scheduler, or an earlier \
             run, owns it; give each scheduler its own directory, or move the file away"
        );
        assert_eq!(
            text(Reason::Taken),
            "event log /logs/j1.eventlog.gz.running is complete and can't be renamed, because /logs/j1.eventlog.gz \
             exists and is not overwritten; give each scheduler its own directory, or move one of the files away"
        );
        assert_eq!(
            text(Reason::Removed),
            "event log /logs/j1.eventlog.gz.running was removed while its job ran, and the rest of the job's events \
             with it; leave logs alone until they are renamed"
        );
        assert_eq!(
            Reason::TooLong.explain(&"é".repeat(101), None),
            format!(
                "job id {:?}… is too long for the name of an event log: it may have 200 bytes, and all but letters, \
                 digits, '.', '_' and '-' count three times",
                "é".repeat(16)
            )
        );
    }

    #[test]
    fn memory_is_bounded_and_warns_once() {
        let mut refused = RefusedJobs::default();
        for i in 0..CAPACITY + 10 {
            refused.add(&i.to_string(), Reason::Foreign);
        }
        assert_eq!((refused.jobs.len(), refused.oldest.len()), (CAPACITY, CAPACITY));
        assert_eq!(refused.reason("9"), None);
        assert_eq!(refused.reason("10"), Some(Reason::Foreign));
        assert!(refused.warn("10"));
        assert!(!refused.warn("10"));

        let long = "x".repeat(10_000);
        refused.add(&long, Reason::TooLong);
        assert!(refused.jobs.keys().all(|key| key.len() < 210));
        assert_eq!(refused.reason(&long), Some(Reason::TooLong));
        assert_eq!(refused.reason(&long[..MAX_NAME]), None);
    }
}
