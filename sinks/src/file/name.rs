//! From job ids, which come from outside, to file names that can't leave the directory.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::config::Compression;

/// Longest encoded job id (bytes). With the longest ending it stays below the 255 bytes that file systems allow.
pub(super) const MAX_NAME: usize = 200;

/// The names of one job's log.
#[derive(Debug)]
pub(super) struct LogPaths {
    /// While the job runs.
    pub(super) running: PathBuf,
    /// Once it has ended.
    pub(super) finished: PathBuf,
}

impl LogPaths {
    /// `None` when the job id is too long for a file name.
    pub(super) fn new(directory: &Path, compression: Compression, job_id: &str) -> Option<Self> {
        let mut name = encode(job_id)?;
        name.push_str(compression.extension());
        let finished = directory.join(&name);
        name.push_str(".running");
        Some(Self { running: directory.join(name), finished })
    }
}

/// Writes `job_id` so that it is a plain file name, and distinct ids stay distinct.
///
/// ASCII letters, digits, `_`, `-`, and `.` anywhere but in front, stand for themselves; any other byte becomes `%` and
/// two hexadecimal digits. The empty id becomes `%` alone, which nothing else does. `None` when the result is longer
/// than [`MAX_NAME`].
fn encode(job_id: &str) -> Option<String> {
    // Every byte takes at least one.
    if job_id.len() > MAX_NAME {
        return None;
    }
    if job_id.is_empty() {
        return Some("%".to_owned());
    }
    let mut name = String::with_capacity(job_id.len());
    for (i, byte) in job_id.bytes().enumerate() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => name.push(byte.into()),
            b'.' if i > 0 => name.push('.'),
            // Writing to a String does not fail.
            _ => write!(name, "%{byte:02X}").ok()?,
        }
    }
    (name.len() <= MAX_NAME).then_some(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashSet;
    use std::path::Component;

    use super::*;

    #[test]
    fn job_ids_as_file_names() {
        for (id, name) in [
            ("06fz3q", "06fz3q"),
            ("a.b-c_D", "a.b-c_D"),
            ("", "%"),
            (".", "%2E"),
            ("..", "%2E."),
            ("../x", "%2E.%2Fx"),
            ("/etc/passwd", "%2Fetc%2Fpasswd"),
            ("a/b", "a%2Fb"),
            ("a\\b", "a%5Cb"),
            ("a%2Fb", "a%252Fb"),
            ("%", "%25"),
            ("nul\0", "nul%00"),
            ("né", "n%C3%A9"),
            ("a b\n", "a%20b%0A"),
            ("C:x", "C%3Ax"),
        ] {
            assert_eq!(encode(id).as_deref(), Some(name), "{id:?}");
        }
    }

    #[test]
    fn too_long_ids_have_no_name() {
        assert!(encode(&"a".repeat(MAX_NAME)).is_some());
        assert!(encode(&"a".repeat(MAX_NAME + 1)).is_none());
        assert!(encode(&"/".repeat(66)).is_some());
        assert!(encode(&"/".repeat(67)).is_none());
    }

    #[test]
    fn names_stay_in_the_directory_and_apart() {
        // All ids of up to three characters from an alphabet of trouble.
        let alphabet = ['a', '.', '/', '\\', '%', '2', 'F', '\0', 'é', ' '];
        let mut ids = vec![String::new()];
        for length in 0..3 {
            let longer: Vec<_> = ids
                .iter()
                .filter(|id| id.chars().count() == length)
                .flat_map(|id| alphabet.map(|c| format!("{id}{c}")))
                .collect();
            ids.extend(longer);
        }
        let directory = Path::new("/logs");
        let mut seen = HashSet::new();
        for id in ids {
            for compression in [Compression::default(), Compression::None] {
                let paths = LogPaths::new(directory, compression, &id).unwrap();
                for path in [paths.running, paths.finished] {
                    let below = path.strip_prefix(directory).unwrap();
                    assert!(matches!(below.components().collect::<Vec<_>>()[..], [Component::Normal(_)]), "{id:?}");
                    assert!(below.to_str().unwrap().bytes().all(|b| b.is_ascii_graphic() && b != b'\\'));
                    assert!(seen.insert(path), "{id:?} shares a name");
                }
            }
        }
    }
}
