//! [`SinkName`]: what users write to choose a sink.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// The name by which a sink is chosen: lower-case letters, digits, `-` and `_`, beginning with a letter.
///
/// ```
/// use ballista_event_sinks::SinkName;
///
/// assert_eq!("file".parse::<SinkName>()?, SinkName::FILE);
/// assert!("File".parse::<SinkName>().is_err());
/// # Ok::<(), ballista_event_sinks::SinkNameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SinkName(Cow<'static, str>);

impl SinkName {
    /// [`FileSink`](crate::FileSink).
    pub const FILE: Self = Self(Cow::Borrowed("file"));
    /// [`StdoutSink`](crate::StdoutSink).
    pub const STDOUT: Self = Self(Cow::Borrowed("stdout"));
    /// [`NullSink`](crate::NullSink).
    pub const NULL: Self = Self(Cow::Borrowed("null"));
}

impl FromStr for SinkName {
    type Err = SinkNameError;

    fn from_str(text: &str) -> Result<Self, SinkNameError> {
        let accepted = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(accepted) {
            Ok(Self(Cow::Owned(text.to_owned())))
        } else {
            Err(SinkNameError { name: text.to_owned() })
        }
    }
}

impl fmt::Display for SinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for SinkName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// A text is no [`SinkName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} can't be the name of an event sink: \
     use lower-case letters, digits, '-' and '_', beginning with a letter, as in \"file\""
)]
#[non_exhaustive]
pub struct SinkNameError {
    /// The text.
    pub name: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["file", "s3", "my-sink_2"] {
            assert_eq!(good.parse::<SinkName>().unwrap().to_string(), good);
        }
        for bad in ["", "File", "2nd", "-x", "a b", "a,b", "é", "a\n"] {
            assert!(bad.parse::<SinkName>().is_err(), "{bad:?}");
        }
        assert_eq!(
            "File".parse::<SinkName>().unwrap_err().to_string(),
            "\"File\" can't be the name of an event sink: \
             use lower-case letters, digits, '-' and '_', beginning with a letter, as in \"file\""
        );
    }
}
