//! Which executors the cluster has, so that each joining and leaving is told once.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use ballista_core::serde::scheduler::ExecutorMetadata;

use super::{Shared, now_ms};
use crate::event::{Event, EventData, ExecutorRegistered, ExecutorRemoved};

/// Ids of the executors that have joined and not left.
#[derive(Default)]
pub(super) struct Executors {
    present: RwLock<HashSet<String>>,
}

impl Executors {
    /// Read first: under pull scheduling every poll asks, and almost every poll is from an executor that is known.
    fn is_present(&self, executor_id: &str) -> bool {
        self.present.read().unwrap_or_else(PoisonError::into_inner).contains(executor_id)
    }

    /// True if it was not present.
    fn add(&self, executor_id: &str) -> bool {
        self.present.write().unwrap_or_else(PoisonError::into_inner).insert(executor_id.to_owned())
    }

    /// True if it was present.
    fn remove(&self, executor_id: &str) -> bool {
        self.present.write().unwrap_or_else(PoisonError::into_inner).remove(executor_id)
    }
}

impl Shared {
    /// What to say if an executor that is going to be saved turns out to be new; `None` if it is known.
    pub(super) fn newcomer(&self, metadata: &ExecutorMetadata) -> Option<ExecutorRegistered> {
        if self.executors.is_present(&metadata.id) {
            return None;
        }
        let os = &metadata.os_info;
        let os_name = [os.system_name.as_str(), os.os_ver.as_str()].join(" ").trim().to_owned();
        Some(ExecutorRegistered {
            executor_id: metadata.id.clone(),
            host: metadata.host.clone(),
            port: metadata.port,
            grpc_port: metadata.grpc_port,
            vcores: metadata.specification.vcores,
            at: now_ms(),
            scheduler_id: self.scheduler_id(),
            os: (!os_name.is_empty()).then_some(os_name),
            physical_cores: os.physical_cores,
        })
    }

    pub(super) fn executor_joined(&self, newcomer: ExecutorRegistered) {
        // Two polls of one new executor may race to here.
        if self.executors.add(&newcomer.executor_id) {
            self.bus.emit(Event::of_cluster(EventData::ExecutorRegistered(newcomer)));
        }
    }

    pub(super) fn executor_left(&self, executor_id: &str) {
        if self.executors.remove(executor_id) {
            self.bus.emit(Event::of_cluster(EventData::ExecutorRemoved(ExecutorRemoved {
                executor_id: executor_id.to_owned(),
                at: now_ms(),
            })));
        }
    }
}
