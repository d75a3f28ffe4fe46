//! Events for tests, and what runs a sink's futures.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use ballista_event_sink::event::Event;

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// The lines that a sink should write for `events`.
pub(crate) fn lines_of(events: &[Arc<Event>]) -> Vec<u8> {
    let mut lines = Vec::new();
    for event in events {
        event.write_json_line(&mut lines).unwrap();
    }
    lines
}

fn event(line: &str) -> Arc<Event> {
    Arc::new(Event::from_json_line(line).unwrap().unwrap())
}

/// `job_id` as it stands within a JSON string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if u32::from(c) < 0x20 => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn of_job(ev: &str, job_id: &str, data: &str) -> Arc<Event> {
    event(&format!(r#"{{"ev":"{ev}","version":1,"job_id":{},"data":{data}}}"#, quoted(job_id)))
}

pub(crate) fn queued(job_id: &str) -> Arc<Event> {
    of_job("JobQueued", job_id, &format!(r#"{{"job_id":{},"job_name":"n","queued_at":1}}"#, quoted(job_id)))
}

pub(crate) fn stage_start(job_id: &str, stage_id: u32) -> Arc<Event> {
    of_job("StageStart", job_id, &format!(r#"{{"stage_id":{stage_id},"partitions":4}}"#))
}

/// A StageStart with a plan that does not compress well.
pub(crate) fn bulky(job_id: &str, seed: u64, bytes: usize) -> Arc<Event> {
    let mut state = 2 * seed + 1;
    let plan: String = (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap())
        })
        .collect();
    of_job("StageStart", job_id, &format!(r#"{{"stage_id":1,"partitions":4,"plan":"{plan}"}}"#))
}

pub(crate) fn task_end(job_id: &str, task_id: u32, executor_id: &str) -> Arc<Event> {
    let data = format!(
        r#"{{"stage_id":1,"task_id":{task_id},"executor_id":"{executor_id}","status":"Successful","launch_time":1,"start_exec_time":2,"end_exec_time":3,"metrics":{{"input_rows":1,"output_rows":1,"elapsed_compute_nanos":1}}}}"#
    );
    of_job("TaskEnd", job_id, &data)
}

pub(crate) fn job_end(job_id: &str) -> Arc<Event> {
    let id = quoted(job_id);
    let data = format!(
        r#"{{"status":"Succeeded","queued_at":1,"started_at":2,"completed_at":3,"index":{{"job_id":{id},"job_name":"n","status":"Completed","job_status":"done","start_time":2,"end_time":3,"num_stages":1,"completed_stages":1,"percent_complete":100}},"job":{{}},"stages":[],"config":{{}},"dot":"digraph {{}}"}}"#
    );
    of_job("JobEnd", job_id, &data)
}

pub(crate) fn joined(executor_id: &str, at: u64) -> Arc<Event> {
    event(&format!(
        r#"{{"ev":"ExecutorRegistered","version":1,"data":{{"executor_id":"{executor_id}","host":"h","port":1,"grpc_port":2,"vcores":8,"at":{at}}}}}"#
    ))
}

pub(crate) fn left(executor_id: &str, at: u64) -> Arc<Event> {
    event(&format!(r#"{{"ev":"ExecutorRemoved","version":1,"data":{{"executor_id":"{executor_id}","at":{at}}}}}"#))
}
