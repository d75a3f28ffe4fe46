//! [`SinkOptions`]: what sinks are made from.

use std::path::PathBuf;

use crate::file::{Compression, FileSinkConfig};

/// What factories make sinks from: the options of the command line.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SinkOptions {
    /// Where the file sink keeps event logs. `None` by default.
    pub event_log_dir: Option<PathBuf>,
    /// How the file sink compresses event logs.
    pub compression: Compression,
    /// How many event logs the file sink holds open at a time; see [`FileSinkConfig::max_open_files`].
    pub max_open_files: usize,
}

impl Default for SinkOptions {
    fn default() -> Self {
        Self {
            event_log_dir: None,
            compression: Compression::default(),
            max_open_files: FileSinkConfig::DEFAULT_MAX_OPEN_FILES,
        }
    }
}

impl SinkOptions {
    /// Sets [`event_log_dir`](Self::event_log_dir).
    #[must_use]
    pub fn with_event_log_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.event_log_dir = Some(directory.into());
        self
    }

    /// Sets [`compression`](Self::compression).
    #[must_use]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets [`max_open_files`](Self::max_open_files).
    #[must_use]
    pub fn with_max_open_files(mut self, count: usize) -> Self {
        self.max_open_files = count;
        self
    }
}
