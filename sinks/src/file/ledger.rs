//! Which logs this process began, so that they can be continued: after a while of silence, or after a panic.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::executors::Introduced;

/// The running jobs whose logs this process began. Shared by all clones of a sink.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Mutex<HashMap<String, Entry>>,
}

/// How it is with a log.
#[derive(Debug)]
enum Entry {
    /// A clone writes it.
    Held,
    /// It ends with a whole member, and can be continued.
    Left(Introduced),
    /// It ends somewhere, and what would be appended could not be read.
    Torn,
}

/// What [`Ledger::hold`] finds.
pub(super) enum Claim {
    /// This process did not begin the log.
    Unknown,
    /// The log is the caller's to continue.
    Continue(Introduced),
    /// Another clone writes it.
    Held,
    /// It is torn.
    Torn,
}

impl Ledger {
    /// Claims a log that was left.
    pub(super) fn hold(&self, job_id: &str) -> Claim {
        match self.entries().get_mut(job_id) {
            None => Claim::Unknown,
            Some(Entry::Held) => Claim::Held,
            Some(Entry::Torn) => Claim::Torn,
            Some(entry @ Entry::Left(_)) => match std::mem::replace(entry, Entry::Held) {
                Entry::Left(introduced) => Claim::Continue(introduced),
                Entry::Held | Entry::Torn => Claim::Held,
            },
        }
    }

    /// The caller began the log.
    pub(super) fn begin(&self, job_id: &str) {
        self.entries().insert(job_id.to_owned(), Entry::Held);
    }

    /// The caller leaves the log, whole.
    pub(super) fn leave(&self, job_id: &str, introduced: Introduced) {
        self.entries().insert(job_id.to_owned(), Entry::Left(introduced));
    }

    /// The caller leaves the log, torn.
    pub(super) fn tear(&self, job_id: &str) {
        self.entries().insert(job_id.to_owned(), Entry::Torn);
    }

    /// Nothing more will come for the log.
    pub(super) fn forget(&self, job_id: &str) {
        self.entries().remove(job_id);
    }

    /// As [`forget`](Self::forget), unless someone writes the log.
    pub(super) fn forget_torn(&self, job_id: &str) {
        let mut entries = self.entries();
        if let Some(Entry::Torn) = entries.get(job_id) {
            entries.remove(job_id);
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        // No operation leaves the map half changed.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
