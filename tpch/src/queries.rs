//! The 22 queries of the TPC-H specification (revision 3, section 2.4), each with its validation parameters.

/// One query of the benchmark.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    /// `q1` to `q22`.
    pub name: &'static str,
    /// Its text: one statement.
    pub sql: &'static str,
}

macro_rules! queries {
    ($($name:literal),* $(,)?) => {
        [$(Query { name: $name, sql: include_str!(concat!("queries/", $name, ".sql")) }),*]
    };
}

/// All of them, in order.
pub const QUERIES: [Query; 22] = queries![
    "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11", "q12", "q13", "q14", "q15", "q16", "q17",
    "q18", "q19", "q20", "q21", "q22",
];
