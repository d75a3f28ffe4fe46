//! Who is in the cluster, so that each log can introduce the executors that worked for its job.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ballista_event_sink::event::Event;

/// The executors that are in the cluster now.
#[derive(Debug, Default)]
pub(super) struct Roster {
    executors: HashMap<String, Registration>,
    registrations: u64,
}

/// How an executor joined.
#[derive(Debug, Clone)]
pub(super) struct Registration {
    /// Tells registrations apart: an executor that comes back, perhaps with other cores, has another number.
    pub(super) number: u64,
    /// Its ExecutorRegistered.
    pub(super) event: Arc<Event>,
}

impl Roster {
    /// An executor joined. Gives its registration's number.
    pub(super) fn join(&mut self, executor_id: &str, event: &Arc<Event>) -> u64 {
        let number = self.registrations;
        self.registrations += 1;
        self.executors.insert(executor_id.to_owned(), Registration { number, event: Arc::clone(event) });
        number
    }

    /// An executor left.
    pub(super) fn leave(&mut self, executor_id: &str) {
        self.executors.remove(executor_id);
    }

    pub(super) fn get(&self, executor_id: &str) -> Option<&Registration> {
        self.executors.get(executor_id)
    }

    /// Keeps of `introduced` what can still matter, so that it stays small however often executors come and go.
    pub(super) fn prune(&self, introduced: &mut Introduced) {
        if introduced.len() > self.executors.len() {
            let current: HashSet<u64> = self.executors.values().map(|executor| executor.number).collect();
            introduced.retain(|number| current.contains(number));
        }
    }
}

/// The numbers of the registrations that a log has.
pub(super) type Introduced = HashSet<u64>;
