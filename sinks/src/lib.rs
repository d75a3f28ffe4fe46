//! Sinks for the events of a Ballista scheduler, and choosing among them at run time.
//!
//! An [`EventSink`](ballista_event_sink::sink::EventSink) takes the events that a scheduler emits. This crate has three:
//!
//! | name | sink | events go |
//! |---|---|---|
//! | `file` | [`FileSink`] | into one log for each job, compressed, for the history server |
//! | `stdout` | [`StdoutSink`] | to standard output, one JSON line each, for a pipe |
//! | `null` | [`NullSink`] | nowhere; they are counted, for tests and measurements |
//!
//! Use one directly, or let names decide: a [`SinkRegistry`] knows these three and whatever you register, and makes
//! the sinks that the command line asks for.
//!
//! ```
//! use ballista_event_sinks::{NullSink, SinkName, SinkOptions, SinkRegistry};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut registry = SinkRegistry::builtin();
//! registry.register("forget".parse()?, "throws events away", |_| Ok(Box::new(NullSink::new())))?;
//!
//! let names: Vec<SinkName> = vec!["forget".parse()?, SinkName::STDOUT];
//! let sinks = registry.create(&names, &SinkOptions::default())?;
//! assert_eq!(sinks.len(), 2);
//! # Ok(())
//! # }
//! ```

pub mod file;
mod null;
mod registry;
mod stdout;
#[cfg(test)]
mod testing;

pub use file::{Compression, FileSink, FileSinkConfig, FileSinkError};
pub use null::NullSink;
pub use registry::{NamedSink, SinkConfigError, SinkName, SinkNameError, SinkOptions, SinkRegistry};
pub use stdout::StdoutSink;
