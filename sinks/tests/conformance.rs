//! The conformance suite on the file and the null sink. The stdout sink has a process of its own: see `stdout.rs`.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use ballista_event_sink::conformance::{check, check_delivery};
use ballista_event_sinks::{Compression, FileSink, FileSinkConfig, NullSink};
use flate2::read::MultiGzDecoder;

/// The lines of a finished log.
fn lines(directory: &Path, job_id: &str, compression: Compression) -> Vec<String> {
    let mut text = String::new();
    match compression {
        Compression::None => text = fs::read_to_string(directory.join(format!("{job_id}.eventlog"))).unwrap(),
        _ => {
            let file = File::open(directory.join(format!("{job_id}.eventlog.gz"))).unwrap();
            MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
        }
    }
    text.lines().map(str::to_owned).collect()
}

async fn file_sink_conforms(compression: Compression, max_open_files: usize) {
    let directory = tempfile::tempdir().unwrap();
    let config =
        FileSinkConfig::new(directory.path()).with_compression(compression).with_max_open_files(max_open_files);
    check(|| Box::new(FileSink::new(config.clone()).unwrap())).await;
    check_delivery(
        || Box::new(FileSink::new(config.clone()).unwrap()),
        |job_id| lines(directory.path(), job_id, compression),
    )
    .await;
}

#[tokio::test]
async fn gzip_files() {
    file_sink_conforms(Compression::default(), FileSinkConfig::DEFAULT_MAX_OPEN_FILES).await;
}

#[tokio::test]
async fn plain_files() {
    file_sink_conforms(Compression::None, FileSinkConfig::DEFAULT_MAX_OPEN_FILES).await;
}

/// Every log is closed and opened again all the time.
#[tokio::test]
async fn files_with_few_handles() {
    file_sink_conforms(Compression::default(), 2).await;
    file_sink_conforms(Compression::None, 2).await;
}

#[tokio::test]
async fn null() {
    let sink = NullSink::new();
    check(|| Box::new(sink.clone())).await;
    assert!(sink.written() > 1000);
}
