//! TPC-H at a small scale: what the examples, tests and benchmarks of this workspace run.
//!
//! [`generate`] writes the eight tables as Parquet files, once for each scale; [`QUERIES`] are the benchmark's 22
//! queries with the validation parameters of its specification.

mod data;
mod queries;

pub use data::{DataError, Tables, generate};
pub use queries::{QUERIES, Query};
