//! The command line: stock's flags, and those of the event sinks.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use ballista_event_sink::OverflowPolicy;
use ballista_event_sink::bus::{DEFAULT_QUEUE_CAPACITY, EventBus, EventBusBuilder};
use ballista_event_sinks::{Compression, SinkConfigError, SinkName, SinkOptions, SinkRegistry};
use ballista_scheduler::config::Config;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser};

/// What the command line says.
#[derive(Debug, Parser)]
#[command(name = "ballista-scheduler", version, about = "Ballista scheduler with event sinks", long_about = None)]
pub struct Cli {
    /// Stock's flags. `event_log_dir` is taken out of them: stock's own event log stays off.
    #[command(flatten)]
    pub scheduler: Config,
    /// The flags of the event sinks.
    #[command(flatten)]
    pub events: EventArgs,
    /// Run an executor in this process too, so that one process is a whole cluster
    #[arg(long, help_heading = "Standalone")]
    pub standalone: bool,
    /// Virtual cores of the standalone executor [default: the machine's]
    #[arg(long, value_name = "CORES", requires = "standalone", value_parser = clap::value_parser!(u16).range(1..),
        help_heading = "Standalone")]
    pub standalone_vcores: Option<u16>,
}

/// The flags of the event sinks. Each has an environment variable.
#[derive(Debug, Args)]
#[command(next_help_heading = "Event sinks")]
pub struct EventArgs {
    /// Where events go; several, separated by commas or by repeating the flag
    #[arg(long, value_name = "SINK", value_delimiter = ',', env = "BALLISTA_EVENT_SINK")]
    pub event_sink: Vec<SinkName>,
    /// How the file sink compresses logs: gzip, or none for logs that the stock history server reads
    #[arg(long, value_name = "gzip|none", default_value = "gzip", env = "BALLISTA_EVENT_LOG_COMPRESSION")]
    pub event_log_compression: Compression,
    /// Gzip level, from 1 (fastest) to 9 (smallest) [default: 3]
    #[arg(long, value_name = "1-9", value_parser = clap::value_parser!(u32).range(1..=9),
        env = "BALLISTA_EVENT_LOG_COMPRESSION_LEVEL")]
    pub event_log_compression_level: Option<u32>,
    /// Events that each sink's queue holds at most
    #[arg(long, value_name = "EVENTS", default_value_t = DEFAULT_QUEUE_CAPACITY as u32,
        value_parser = clap::value_parser!(u32).range(1..), env = "BALLISTA_EVENT_QUEUE_CAPACITY")]
    pub event_queue_capacity: u32,
    /// What happens when a queue is full: drop-newest, drop-oldest, block or block:MILLISECONDS (holds the scheduler up)
    #[arg(long, value_name = "POLICY", default_value_t = OverflowPolicy::default(), env = "BALLISTA_EVENT_QUEUE_POLICY")]
    pub event_queue_policy: OverflowPolicy,
    /// Record every plan that an adaptive job goes through, with what each replan changed and why
    #[arg(long, env = "BALLISTA_EVENT_LOG_PLAN_REVISIONS")]
    pub event_log_plan_revisions: bool,
    /// Seconds that the sinks have to finish when the scheduler is told to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 10, env = "BALLISTA_EVENT_SHUTDOWN_TIMEOUT")]
    pub event_shutdown_timeout: u32,
    /// Where the file sink writes. Stock's own flag, so it is moved here from the stock flags.
    #[arg(skip)]
    pub event_log_dir: Option<PathBuf>,
}

impl Cli {
    /// Reads a command line, and the environment.
    ///
    /// # Errors
    ///
    /// clap's error, which also stands for `--help` and `--version`; [`clap::Error::exit`] prints it and exits.
    pub fn try_parse_from(
        args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
        registry: &SinkRegistry,
    ) -> Result<Self, clap::Error> {
        let matches = command(registry).try_get_matches_from(args)?;
        let mut cli = Self::from_arg_matches(&matches)?;
        cli.events.event_log_dir = cli.scheduler.event_log_dir.take().map(PathBuf::from);
        if cli.events.event_log_dir.is_some() && cli.events.event_sink.is_empty() {
            cli.events.event_sink.push(SinkName::FILE);
        }
        Ok(cli)
    }
}

/// The command, with what derive can't say: stock's `--event-log-dir` means our file sink, and the sinks that exist
/// are those of the registry.
fn command(registry: &SinkRegistry) -> clap::Command {
    let known: Vec<String> = registry.summaries().map(|(name, summary)| format!("- {name}: {summary}")).collect();
    let sinks =
        format!("Where events go; several, separated by commas or by repeating the flag\n\n{}", known.join("\n"));
    Cli::command().mut_arg("event_sink", |arg| arg.long_help(sinks)).mut_arg("event_log_dir", |arg| {
        arg.env("BALLISTA_EVENT_LOG_DIR")
            .value_name("DIR")
            .help_heading("Event sinks")
            .help("Directory of the file sink's logs, one for each job. Alone it means --event-sink=file")
    })
}

impl EventArgs {
    /// A bus with the sinks that were asked for; `None` if none were.
    ///
    /// # Errors
    ///
    /// A usage error (exit code 2) that names the flag, for whatever can't be made of the flags.
    pub fn bus(&self, registry: &SinkRegistry) -> Result<Option<EventBusBuilder>, clap::Error> {
        let options = self.sink_options()?;
        let sinks = registry.create(&self.event_sink, &options).map_err(|error| usage_error(registry, &error))?;
        if sinks.is_empty() {
            return Ok(None);
        }
        let builder = EventBus::builder()
            .queue_capacity(self.event_queue_capacity as usize)
            .overflow_policy(self.event_queue_policy)
            .plan_revisions(self.event_log_plan_revisions);
        Ok(Some(sinks.into_iter().fold(builder, |bus, (name, sink)| bus.sink(name.to_string(), sink))))
    }

    /// How long the sinks have to finish at the end.
    pub fn shutdown_timeout(&self) -> Duration {
        Duration::from_secs(self.event_shutdown_timeout.into())
    }

    fn sink_options(&self) -> Result<SinkOptions, clap::Error> {
        let compression = match (self.event_log_compression, self.event_log_compression_level) {
            (Compression::None, Some(level)) => {
                return Err(Cli::command().error(
                    ErrorKind::ArgumentConflict,
                    format!(
                        "--event-log-compression-level {level} has no meaning with --event-log-compression none; \
                         leave one of them out"
                    ),
                ));
            }
            (Compression::Gzip(_), Some(level)) => {
                Compression::gzip(level).map_err(|e| Cli::command().error(ErrorKind::InvalidValue, e))?
            }
            (compression, None) => compression,
            (other, Some(_)) => other,
        };
        let options = SinkOptions::default().with_compression(compression);
        Ok(match &self.event_log_dir {
            Some(directory) => options.with_event_log_dir(directory),
            None => options,
        })
    }
}

/// What is wrong with the sinks that were asked for, under the flag that is to be mended.
fn usage_error(registry: &SinkRegistry, error: &SinkConfigError) -> clap::Error {
    let flag = match error {
        SinkConfigError::File { .. } => "--event-log-dir",
        _ => "--event-sink",
    };
    let kind = match error {
        SinkConfigError::NoDirectory { .. } => ErrorKind::MissingRequiredArgument,
        _ => ErrorKind::InvalidValue,
    };
    command(registry).error(kind, format!("{flag}: {error}"))
}
