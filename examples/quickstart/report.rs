//! What the logs say: read from the files, and made into a table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use ballista_event_sink::event::{JobEndStatus, JobPlanRevision, StageStatus, TaskStatus};
use ballista_event_sink::sink::BoxError;
use ballista_event_sink::{Event, EventData, EventKind};
use flate2::read::MultiGzDecoder;
use serde::Deserialize;

use crate::Run;
use crate::jobs::{Ending, STORY};

/// Longest cause of a failure that is shown (characters).
const LONGEST_CAUSE: usize = 100;

const COLUMNS: usize = 11;

/// The column that has a colour, and the last one whose cells begin at the left: what follows are numbers.
const OUTCOME: usize = 2;

/// What is shown of one job.
pub(crate) struct Row {
    name: String,
    job_id: String,
    status: JobEndStatus,
    /// What a task that failed said. It is nearer to the cause than what became of it at the end of the job.
    task_error: Option<String>,
    stages: usize,
    tasks: usize,
    /// Rows of the result, if there is one.
    rows: Option<u64>,
    millis: u64,
    bytes: u64,
    path: PathBuf,
    provenance: Provenance,
    revisions: Vec<JobPlanRevision>,
    /// Whether the log tells all, from the job's first event to its last.
    whole: bool,
}

/// Where the job's plan comes from, in the REST response that its JobEnd holds.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Provenance {
    adaptive: bool,
    replans: u32,
    diverged_stages: Vec<u32>,
}

/// Reads a log.
pub(crate) fn read(path: &Path) -> Result<Row, BoxError> {
    let file = File::open(path)?;
    let bytes = fs::metadata(path)?.len();
    // A log may consist of several gzip members, hence the decoder for many.
    let compressed = path.extension().is_some_and(|extension| extension == "gz");
    let plain: Box<dyn Read> = if compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };

    let (mut first, mut last) = (None, None);
    let mut stages = BTreeSet::new();
    let mut last_stage = None;
    let mut tasks = 0;
    let mut task_error = None;
    let mut rows_of_stages = BTreeMap::<u32, u64>::new();
    let mut revisions = Vec::new();
    let mut end = None;
    for line in BufReader::new(plain).lines() {
        // A kind that this version doesn't know is no error: a later one may have written the log.
        let Some(event) = Event::from_json_line(&line?)? else { continue };
        first.get_or_insert(event.kind());
        last = Some(event.kind());
        match event.data() {
            EventData::StageStart(stage) => {
                stages.insert(stage.stage_id);
            }
            EventData::StageEnd(stage) if stage.status == StageStatus::Successful => last_stage = Some(stage.stage_id),
            EventData::TaskEnd(task) => {
                tasks += 1;
                *rows_of_stages.entry(task.stage_id).or_default() += task.metrics.output_rows;
                if let TaskStatus::Failed { error, .. } = &task.status {
                    task_error = Some(error.clone());
                }
            }
            EventData::JobPlanRevision(revision) => revisions.push(revision.clone()),
            EventData::JobEnd(job) => end = Some(job.clone()),
            _ => {}
        }
    }
    let end = end.ok_or("the log has no JobEnd")?;
    let begins = matches!(first, Some(EventKind::JobQueued | EventKind::JobStart));
    let succeeded = end.status == JobEndStatus::Succeeded;
    Ok(Row {
        name: end.index.job_name,
        job_id: end.index.job_id,
        status: end.status,
        task_error,
        stages: stages.len(),
        tasks,
        // The result is what the last stage wrote.
        rows: last_stage.and_then(|stage| rows_of_stages.get(&stage).copied()).filter(|_| succeeded),
        millis: end.completed_at.saturating_sub(end.queued_at),
        bytes,
        path: path.to_owned(),
        provenance: serde_json::from_str(end.job.get())?,
        revisions,
        whole: begins && last == Some(EventKind::JobEnd) && end.dropped_events.is_empty(),
    })
}

impl Row {
    fn ending(&self) -> Option<Ending> {
        match self.status {
            JobEndStatus::Succeeded => Some(Ending::Succeeded),
            JobEndStatus::Failed(_) => Some(Ending::Failed),
            JobEndStatus::Cancelled => Some(Ending::Cancelled),
            _ => None,
        }
    }

    /// What differs between the log and what the client saw, or was to see.
    pub(crate) fn compare(&self, run: &Run<'_>) -> Vec<String> {
        let name = run.job.name;
        let mut unexpected = Vec::new();
        if self.ending() != Some(run.job.ending) {
            unexpected.push(format!("{name:?} was to end as {:?}, and its log says {:?}", run.job.ending, self.status));
        }
        match &run.result {
            Ok(_) if run.job.ending != Ending::Succeeded => {
                unexpected.push(format!("the client of {name:?} got a result"));
            }
            Ok(rows) if Some(*rows as u64) != self.rows => {
                unexpected.push(format!("the client of {name:?} got {rows} rows, and its log says {:?}", self.rows));
            }
            Err(error) if run.job.ending == Ending::Succeeded => {
                unexpected.push(format!("the client of {name:?} got no result: {error}"));
            }
            _ => {}
        }
        if !self.whole {
            unexpected.push(format!("the log of {name:?} does not tell all"));
        }
        unexpected
    }
}

/// The table, where the logs are, and what to do with one.
pub(crate) fn render(rows: &[Row], logs: &Path) -> String {
    let mut cells = vec![
        ["JOB", "ID", "OUTCOME", "STAGES", "TASKS", "ROWS", "MS", "ADAPTIVE", "REPLANS", "DIVERGED", "LOG"]
            .map(String::from),
    ];
    let mut styles = vec![Style::new().bold()];
    for row in rows {
        let (outcome, colour) = match row.ending() {
            Some(Ending::Succeeded) => ("succeeded", AnsiColor::Green),
            Some(Ending::Failed) => ("failed", AnsiColor::Red),
            Some(Ending::Cancelled) => ("cancelled", AnsiColor::Yellow),
            None => ("unknown", AnsiColor::Magenta),
        };
        cells.push([
            row.name.clone(),
            row.job_id.clone(),
            outcome.to_owned(),
            row.stages.to_string(),
            row.tasks.to_string(),
            row.rows.map_or_else(|| "-".to_owned(), |rows| rows.to_string()),
            row.millis.to_string(),
            if row.provenance.adaptive { "yes" } else { "no" }.to_owned(),
            row.provenance.replans.to_string(),
            row.provenance.diverged_stages.len().to_string(),
            format!("{:.1} kB", row.bytes as f64 / 1000.0),
        ]);
        styles.push(colour.on_default());
    }
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_all(&mut text, &cells, &styles, rows, logs);
    text
}

fn write_all(
    text: &mut String,
    cells: &[[String; COLUMNS]],
    styles: &[Style],
    rows: &[Row],
    logs: &Path,
) -> std::fmt::Result {
    let widths: [usize; COLUMNS] =
        std::array::from_fn(|column| cells.iter().map(|line| line[column].chars().count()).max().unwrap_or_default());
    for (number, (line, style)) in cells.iter().zip(styles).enumerate() {
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            // All of the header is styled, and of the rest what is worth a colour. Padding comes from the plain text,
            // which escape sequences would make look longer.
            let style = if number == 0 || column == OUTCOME { *style } else { Style::new() };
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            let gap = if column == 0 { "" } else { "  " };
            if column <= OUTCOME {
                write!(text, "{gap}{style}{cell}{style:#}{padding}")?;
            } else {
                write!(text, "{gap}{padding}{style}{cell}{style:#}")?;
            }
        }
        writeln!(text)?;
    }
    writeln!(text)?;
    for row in rows {
        if let JobEndStatus::Failed(message) = &row.status {
            let cause = cause(row.task_error.as_ref().unwrap_or(message));
            writeln!(text, "{:?} failed: {cause}", row.name)?;
        }
    }
    if let Some(row) = rows.iter().filter(|row| row.name == STORY).find(|row| row.revisions.len() > 1) {
        tell(text, row)?;
    }
    writeln!(text, "\nAll of this was read from the event logs in {}", logs.display())?;
    if let Some(row) = rows.iter().max_by_key(|row| row.tasks) {
        writeln!(text, "To see what happened in {}, type:\n\n    {}", row.name, next_line(&row.path))?;
    }
    Ok(())
}

/// How a plan came to be what it was, replan by replan.
fn tell(text: &mut String, row: &Row) -> std::fmt::Result {
    writeln!(text, "\nThe plan of {:?}, as adaptive planning changed it:", row.name)?;
    for revision in &row.revisions {
        match revision.trigger_stage_id {
            None => writeln!(text, "  revision {}: as submitted", revision.revision)?,
            Some(stage) => writeln!(text, "  revision {}, since stage {stage} completed:", revision.revision)?,
        }
        for change in &revision.changes {
            let change = change.to_string();
            let end = change.char_indices().nth(LONGEST_CAUSE).map_or(change.len(), |(end, _)| end);
            writeln!(text, "    - {}", &change[..end])?;
        }
    }
    Ok(())
}

/// What is wrong, out of a message that may be the `Debug` print of an error in an error in an error.
fn cause(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    // Up to the first parenthesis there are names and colons; beyond it, only names: `Shared(External("…"))`.
    let head = line.find('(').unwrap_or(line.len());
    let mut cause = line[..head].rfind(": ").map_or(line, |colon| &line[colon + 2..]);
    while let Some((name, inner)) = cause.strip_suffix(')').and_then(|cause| cause.split_once('('))
        && name.chars().all(char::is_alphanumeric)
    {
        cause = inner;
    }
    let cause = cause.trim_matches('"');
    match cause.char_indices().nth(LONGEST_CAUSE) {
        Some((end, _)) => format!("{}…", &cause[..end]),
        None => cause.to_owned(),
    }
}

/// The line to type next, for a reader who has never seen a log.
fn next_line(log: &Path) -> String {
    // Shorter, if one stands where the program was started.
    let current = std::env::current_dir().unwrap_or_default();
    let path = log.strip_prefix(current).unwrap_or(log).display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    let path = if path.chars().all(plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) };
    let cat = match log.extension() {
        // The zcat of macOS is another.
        Some(extension) if extension == "gz" => {
            if cfg!(target_os = "macos") {
                "gzcat"
            } else {
                "zcat"
            }
        }
        _ => "cat",
    };
    let jq =
        std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join("jq").is_file()));
    if jq { format!("{cat} {path} | jq -c .ev") } else { format!("{cat} {path} | cut -c 1-100") }
}
