//! The queries, and how each is expected to end.

use ballista_event_tpch::QUERIES;

/// A query that is run as a job.
pub(crate) struct Job {
    /// The name that the job is given. No other has it, so that the job can be told by its JobQueued.
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
    pub(crate) ending: Ending,
}

/// How a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Succeeded,
    Failed,
    Cancelled,
}

/// From TPC-H: one that only aggregates, some with ever more joins, and one whose final plan may not be what ran (q15).
const CHOSEN: [&str; 6] = ["q1", "q3", "q5", "q13", "q15", "q18"];

/// The job whose plan changes most while it runs, and whose plans are told at the end.
pub(crate) const STORY: &str = "empty join";

/// All jobs, in the order in which they are run.
pub(crate) fn all() -> Vec<Job> {
    let job = |name, sql, ending| Job { name, sql, ending };
    let chosen = QUERIES.iter().filter(|query| CHOSEN.contains(&query.name));
    let mut jobs: Vec<_> = chosen.map(|query| job(query.name, query.sql, Ending::Succeeded)).collect();
    jobs.extend([
        // Nobody orders a million pieces of one thing, and the planner can't know. But once the first stage has found
        // nothing, Ballista plans the rest anew, and what is left is a constant: `orders` isn't even read.
        job(
            STORY,
            "select count(*) from lineitem join orders on l_orderkey = o_orderkey where l_quantity > 1000000",
            Ending::Succeeded,
        ),
        // No constant, so no planner sees it coming: it fails in the tasks.
        job("divide by zero", "select 1 / (l_linenumber - l_linenumber) from lineitem", Ending::Failed),
        // The position must be a constant. That comes to light when the scheduler plans the job, which then fails
        // before it has begun.
        job("bad argument", "select nth_value(n_name, n_nationkey) over (order by n_name) from nation", Ending::Failed),
        // Every line with every line with every line. It would not end in our days, hence it is cancelled.
        job(
            "endless join",
            "select sum(a.l_quantity * b.l_quantity * c.l_quantity) from lineitem a, lineitem b, lineitem c",
            Ending::Cancelled,
        ),
    ]);
    jobs
}
