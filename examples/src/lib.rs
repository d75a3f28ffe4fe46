//! Examples for event sinks, by the question that brings you here.
//!
//! | question | example | command |
//! |---|---|---|
//! | What do I get? | `quickstart` | `cargo run --example quickstart` |
//! | How do I write a sink of my own? | `custom_sink` | `cargo run --example custom_sink` |
//! | How do I get my sink into the scheduler binary? | `custom_scheduler` | `cargo run --example custom_scheduler -- --standalone --event-sink=slow-query` |
//! | How do I send events over the network, and lose or double none? | `webhook_sink` | `cargo run --example webhook_sink` |
//!
//! Nothing else needs to be installed or running: each brings its own cluster, and makes the data that it queries.
//!
//! This library holds what is worth sharing: [`webhook`], a sink to copy and adapt, is here so that it can be tested
//! as any other sink; [`cluster`] starts a scheduler and an executor in one process, which is what an embedder does,
//! less the production.

pub mod cluster;
pub mod webhook;
