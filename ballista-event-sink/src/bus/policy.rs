//! What happens to an event that finds its queue full.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What happens when a sink's queue is full. JobEnd is exempt: it has a lane of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OverflowPolicy {
    /// The event that comes is dropped. The log keeps how things began, and a reader sees where the gap starts. The
    /// caller never waits.
    #[default]
    DropNewest,
    /// The event that has waited longest is dropped for the one that comes. The log keeps how things ended. The caller
    /// never waits.
    DropOldest,
    /// The caller waits until there is room, at most for `limit`; then the event that comes is dropped, and nothing
    /// waits again before the sink has taken something. The caller is the scheduler: its event loop, and with it every
    /// job, stands still for that long. For those who prefer lag to loss.
    Block {
        /// The longest that one stall of the sink may hold the caller up.
        limit: Duration,
    },
}

/// Limit of `block` when none is given.
const DEFAULT_BLOCK_LIMIT: Duration = Duration::from_millis(100);

/// A text that is no [`OverflowPolicy`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown event queue policy {given:?}; use drop-newest, drop-oldest, block (waits up to 100 ms) or block:MILLISECONDS"
)]
pub struct ParsePolicyError {
    given: String,
}

impl FromStr for OverflowPolicy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, ParsePolicyError> {
        let unknown = || ParsePolicyError { given: text.to_owned() };
        match text {
            "drop-newest" => Ok(Self::DropNewest),
            "drop-oldest" => Ok(Self::DropOldest),
            "block" => Ok(Self::Block { limit: DEFAULT_BLOCK_LIMIT }),
            _ => {
                let millis = text.strip_prefix("block:").ok_or_else(unknown)?;
                let millis: u32 = millis.parse().map_err(|_| unknown())?;
                Ok(Self::Block { limit: Duration::from_millis(millis.into()) })
            }
        }
    }
}

impl fmt::Display for OverflowPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DropNewest => f.write_str("drop-newest"),
            Self::DropOldest => f.write_str("drop-oldest"),
            Self::Block { limit } => write!(f, "block:{}", limit.as_millis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for text in ["drop-newest", "drop-oldest", "block:250"] {
            assert_eq!(text.parse::<OverflowPolicy>().map(|p| p.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("block".parse(), Ok(OverflowPolicy::Block { limit: DEFAULT_BLOCK_LIMIT }));
    }

    #[test]
    fn bad_text_is_told_what_is_accepted() {
        for text in ["", "drop", "block:", "block:-1", "block:1s", "Block"] {
            let error = text.parse::<OverflowPolicy>().expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("drop-newest"), "{error}");
        }
    }
}
