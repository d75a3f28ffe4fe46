//! Why a [`FileSink`](super::FileSink) can't be made.

use std::io;
use std::path::PathBuf;

/// The directory for event logs can't be used.
///
/// Found out when the sink is made, so that a scheduler doesn't start and then lose its events. Texts include that of
/// the I/O error, so that isn't repeated as a source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileSinkError {
    /// The path is empty.
    #[error("the event log directory is an empty path: name a directory")]
    NoPath,
    /// There is something else of that name.
    #[error("event log directory {} is not a directory: name another, or move the file that has its name away", .path.display())]
    NotADirectory {
        /// The directory.
        path: PathBuf,
    },
    /// It doesn't exist and can't be made.
    #[error(
        "could not create event log directory {}: {error}; create it, writable for the scheduler's user, or name another",
        .path.display()
    )]
    Create {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        error: io::Error,
    },
    /// Files can't be made, removed and synced in it.
    #[error(
        "event log directory {} is not usable: {problem}; let the scheduler's user read it and write to it, or name another",
        .path.display()
    )]
    NotUsable {
        /// The directory.
        path: PathBuf,
        /// What was tried, and what the operating system said.
        problem: String,
    },
}
