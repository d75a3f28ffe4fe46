//! What can be wrong with a choice of sinks.

use ballista_event_sink::sink::BoxError;

use super::name::SinkName;
use crate::file::FileSinkError;

/// Why the chosen sinks could not be made, or a sink not be registered.
///
/// Every text names the culprit and says what to do, and includes that of the cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkConfigError {
    /// No sink has this name.
    #[error("unknown event sink {:?}; known sinks: {}", name.as_ref(), known.join(", "))]
    Unknown {
        /// The name that was asked for.
        name: SinkName,
        /// The names there are, sorted.
        known: Vec<String>,
    },
    /// A name was chosen twice, so every event would be written twice.
    #[error("event sink {:?} is named more than once: name each sink once", name.as_ref())]
    Repeated {
        /// The name.
        name: SinkName,
    },
    /// A sink of this name is registered already.
    #[error("an event sink {:?} is registered already: register yours by another name", name.as_ref())]
    Registered {
        /// The name.
        name: SinkName,
    },
    /// The file sink was chosen and no directory given.
    #[error("event sink {:?} needs a directory: set --event-log-dir", name.as_ref())]
    NoDirectory {
        /// The name of the file sink.
        name: SinkName,
    },
    /// The file sink can't use its directory.
    #[error(transparent)]
    File(#[from] FileSinkError),
    /// A sink that was registered from outside could not be made.
    #[error("event sink {:?} could not be set up: {error}", name.as_ref())]
    Custom {
        /// The name of the sink.
        name: SinkName,
        /// What its factory said. Part of the text, hence not repeated as its source.
        error: BoxError,
    },
}

impl SinkConfigError {
    /// For factories: the sink `name` can't be made, for this reason.
    pub fn custom(name: SinkName, error: impl Into<BoxError>) -> Self {
        Self::Custom { name, error: error.into() }
    }
}
