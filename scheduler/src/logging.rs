//! The binary's own log: to standard error, since standard output is the stdout sink's, or to files as stock does.

use std::io::{self, IsTerminal};

use ballista_core::config::LogRotationPolicy;
use ballista_scheduler::config::Config;
use tracing_appender::rolling;
use tracing_subscriber::EnvFilter;

/// Starts logging. `RUST_LOG` wins over `--log-level-setting`, as in the stock binary.
pub(crate) fn init(config: &Config) {
    let filter = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_else(|_| config.log_level_setting.clone());
    let log = tracing_subscriber::fmt()
        .with_thread_names(config.print_thread_info)
        .with_thread_ids(config.print_thread_info)
        .with_env_filter(EnvFilter::new(filter));
    let Some(directory) = &config.log_dir else {
        log.with_ansi(io::stderr().is_terminal()).with_writer(io::stderr).init();
        return;
    };
    let prefix = format!("scheduler_{}_{}_{}", config.namespace, config.external_host, config.bind_port);
    let file = match config.log_rotation_policy {
        LogRotationPolicy::Minutely => rolling::minutely(directory, prefix),
        LogRotationPolicy::Hourly => rolling::hourly(directory, prefix),
        LogRotationPolicy::Daily => rolling::daily(directory, prefix),
        LogRotationPolicy::Never => rolling::never(directory, prefix),
    };
    log.with_ansi(false).with_writer(file).init();
}
