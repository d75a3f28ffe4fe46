//! [`EventSink`] is where the events of a Ballista scheduler go; this crate makes the scheduler emit them.
//!
//! It works with the stock, published `ballista-scheduler` 55: no fork, no patch. A [`tap`] watches the scheduler
//! through the public traits it calls, a [`bus`] hands what it sees to any number of sinks without ever making the
//! scheduler wait, and [`start_server`] puts both into a scheduler. Ready-made sinks (gzip file, stdout, null) and a
//! registry to choose among them are in the crate `ballista-event-sinks`.
//!
//! An embedder changes one line:
//!
//! ```no_run
//! # use std::{sync::Arc, time::Duration};
//! # use ballista_event_sink::{EventBus, EventSink};
//! # use ballista_scheduler::{cluster::BallistaCluster, config::SchedulerConfig};
//! # async fn run(my_sink: Box<dyn EventSink>) -> Result<(), Box<dyn std::error::Error>> {
//! let config = Arc::new(SchedulerConfig::default());
//! let cluster = BallistaCluster::new_from_config(&config).await?;
//! let (bus, guard) = EventBus::builder().sink("mine", my_sink).build()?;
//!
//! // was: ballista_scheduler::scheduler_process::start_server(cluster, address, config).await?;
//! let address = "0.0.0.0:50050".parse()?;
//! ballista_event_sink::start_server(cluster, address, config, bus).await?;
//!
//! println!("{}", guard.shutdown(Duration::from_secs(10)).await);
//! # Ok(())
//! # }
//! ```
//!
//! # What is emitted
//!
//! JobQueued, JobStart, StageStart, TaskEnd, StageEnd and JobEnd for each job; ExecutorRegistered and ExecutorRemoved
//! for the cluster. See [`event`]. The records are a superset of those that the stock event log writes, so stock's
//! readers read them.
//!
//! # Features
//!
//! - `conformance`: functions that authors of sinks run on theirs.
//! - `flight-sql`, `keda-scaler`: serve what the stock features of these names serve. Stock's other features change
//!   nothing here: switch them on in `ballista-scheduler`.

pub mod bus;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod event;
mod plan;
pub mod rest;
pub mod server;
pub mod sink;
pub mod tap;

/// Attribute for implementations of [`EventSink`].
pub use async_trait::async_trait;

pub use bus::{BusGuard, EventBus, OverflowPolicy};
pub use event::{Event, EventData, EventKind};
pub use server::start_server;
pub use sink::{EventSink, SinkError};
