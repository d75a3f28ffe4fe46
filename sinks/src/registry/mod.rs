//! Choosing sinks at run time: a registry makes the sinks whose names a user wrote.

mod error;
mod name;
mod options;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ballista_event_sink::sink::EventSink;

use crate::file::{FileSink, FileSinkConfig};
use crate::{NullSink, StdoutSink};

pub use error::SinkConfigError;
pub use name::{SinkName, SinkNameError};
pub use options::SinkOptions;

/// A sink, with the name by which it was chosen.
pub type NamedSink = (SinkName, Box<dyn EventSink>);

type Factory = dyn Fn(&SinkOptions) -> Result<Box<dyn EventSink>, SinkConfigError> + Send + Sync;

#[derive(Clone)]
struct Entry {
    summary: String,
    factory: Arc<Factory>,
}

/// Makes sinks by name.
#[derive(Clone, Default)]
pub struct SinkRegistry {
    entries: BTreeMap<SinkName, Entry>,
}

impl SinkRegistry {
    /// A registry that knows no sink.
    pub fn empty() -> Self {
        Self::default()
    }

    /// A registry that knows `file`, `stdout` and `null`.
    pub fn builtin() -> Self {
        let mut registry = Self::empty();
        registry.set(SinkName::FILE, "one log for each job in --event-log-dir, compressed", file);
        registry
            .set(SinkName::STDOUT, "one JSON line an event on standard output", |_| Ok(Box::new(StdoutSink::new())));
        registry.set(SinkName::NULL, "counts events and forgets them", |_| Ok(Box::new(NullSink::new())));
        registry
    }

    /// Adds a sink. `summary` is a line for help texts; `factory` makes the sink each time that its name is chosen.
    ///
    /// # Errors
    ///
    /// [`SinkConfigError::Registered`] when the name is taken.
    pub fn register<F>(&mut self, name: SinkName, summary: impl Into<String>, factory: F) -> Result<(), SinkConfigError>
    where
        F: Fn(&SinkOptions) -> Result<Box<dyn EventSink>, SinkConfigError> + Send + Sync + 'static,
    {
        if self.entries.contains_key(&name) {
            return Err(SinkConfigError::Registered { name });
        }
        self.set(name, summary, factory);
        Ok(())
    }

    fn set<F>(&mut self, name: SinkName, summary: impl Into<String>, factory: F)
    where
        F: Fn(&SinkOptions) -> Result<Box<dyn EventSink>, SinkConfigError> + Send + Sync + 'static,
    {
        self.entries.insert(name, Entry { summary: summary.into(), factory: Arc::new(factory) });
    }

    /// Makes the sinks of these names, in this order.
    ///
    /// All names are looked at before the first sink is made, so that a mistyped one leaves no directory behind.
    ///
    /// # Errors
    ///
    /// [`SinkConfigError::Repeated`] and [`SinkConfigError::Unknown`] for the names; then whatever a factory says, such
    /// as [`SinkConfigError::NoDirectory`] and [`SinkConfigError::File`].
    pub fn create(&self, names: &[SinkName], options: &SinkOptions) -> Result<Vec<NamedSink>, SinkConfigError> {
        let mut seen = BTreeSet::new();
        let mut chosen = Vec::with_capacity(names.len());
        for name in names {
            if !seen.insert(name) {
                return Err(SinkConfigError::Repeated { name: name.clone() });
            }
            let entry = self.entries.get(name).ok_or_else(|| SinkConfigError::Unknown {
                name: name.clone(),
                known: self.names().map(ToString::to_string).collect(),
            })?;
            chosen.push((name, entry));
        }
        chosen.into_iter().map(|(name, entry)| Ok((name.clone(), (entry.factory)(options)?))).collect()
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &SinkName> {
        self.entries.keys()
    }

    /// The names, sorted, each with its summary.
    pub fn summaries(&self) -> impl Iterator<Item = (&SinkName, &str)> {
        self.entries.iter().map(|(name, entry)| (name, entry.summary.as_str()))
    }
}

/// Factories have nothing to show, so only names are shown.
impl fmt::Debug for SinkRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names().map(SinkName::as_ref)).finish()
    }
}

fn file(options: &SinkOptions) -> Result<Box<dyn EventSink>, SinkConfigError> {
    let Some(directory) = &options.event_log_dir else {
        return Err(SinkConfigError::NoDirectory { name: SinkName::FILE });
    };
    let config = FileSinkConfig::new(directory)
        .with_compression(options.compression)
        .with_max_open_files(options.max_open_files);
    Ok(Box::new(FileSink::new(config)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn refused(names: &[SinkName], options: &SinkOptions) -> String {
        SinkRegistry::builtin().create(names, options).unwrap_err().to_string()
    }

    #[test]
    fn makes_what_is_chosen_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let options = SinkOptions::default().with_event_log_dir(directory.path().join("logs"));
        let names = [SinkName::STDOUT, SinkName::FILE, SinkName::NULL];
        let made = SinkRegistry::builtin().create(&names, &options).unwrap();
        assert_eq!(made.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), names);
        assert!(directory.path().join("logs").is_dir());
    }

    #[test]
    fn a_wrong_choice_is_explained() {
        let none = SinkOptions::default();
        assert_eq!(
            refused(&["fiel".parse().unwrap()], &none),
            "unknown event sink \"fiel\"; known sinks: file, null, stdout"
        );
        assert_eq!(
            refused(&[SinkName::NULL, SinkName::NULL], &none),
            "event sink \"null\" is named more than once: name each sink once"
        );
        assert_eq!(refused(&[SinkName::FILE], &none), "event sink \"file\" needs a directory: set --event-log-dir");
    }

    #[test]
    fn a_directory_that_can_not_be_is_explained() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("taken");
        std::fs::write(&path, "").unwrap();
        assert_eq!(
            refused(&[SinkName::FILE], &SinkOptions::default().with_event_log_dir(&path)),
            format!(
                "event log directory {} is not a directory: name another, or move the file that has its name away",
                path.display()
            )
        );
    }

    #[test]
    fn a_mistyped_name_leaves_no_directory_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("logs");
        refused(&[SinkName::FILE, "fiel".parse().unwrap()], &SinkOptions::default().with_event_log_dir(&path));
        assert!(!path.exists());
    }

    #[test]
    fn others_can_be_registered_once() {
        let mut registry = SinkRegistry::builtin();
        let kafka: SinkName = "kafka".parse().unwrap();
        let name = kafka.clone();
        registry
            .register(kafka.clone(), "to a broker", move |_| Err(SinkConfigError::custom(name.clone(), "no broker")))
            .unwrap();
        assert_eq!(
            registry.create(std::slice::from_ref(&kafka), &SinkOptions::default()).unwrap_err().to_string(),
            "event sink \"kafka\" could not be set up: no broker"
        );
        assert_eq!(
            registry.register(kafka, "", |_| Ok(Box::new(NullSink::new()))).unwrap_err().to_string(),
            "an event sink \"kafka\" is registered already: register yours by another name"
        );
        assert_eq!(format!("{registry:?}"), r#"{"file", "kafka", "null", "stdout"}"#);
        assert_eq!(registry.summaries().find(|(name, _)| name.as_ref() == "kafka").unwrap().1, "to a broker");
    }
}
