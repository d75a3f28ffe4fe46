//! The operations on files that logs need, with errors that say what was done to which path, and what helps.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// An operation failed that may work later.
///
/// The text includes the I/O error's, so that isn't repeated as a source.
#[derive(Debug, thiserror::Error)]
#[error("could not {action} {}: {error}{}", .path.display(), remedy(.error))]
pub(super) struct DiskError {
    action: &'static str,
    path: PathBuf,
    pub(super) error: io::Error,
}

impl DiskError {
    pub(super) fn kind(&self) -> ErrorKind {
        self.error.kind()
    }
}

/// What helps, to go behind the error's own text. Empty when nobody knows.
fn remedy(error: &io::Error) -> &'static str {
    // Too many open files, in this process or in the system: these have no ErrorKind.
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free some space, and writing goes on",
        ErrorKind::PermissionDenied => "; let the scheduler's user write there, and writing goes on",
        ErrorKind::ReadOnlyFilesystem => "; mount it writable, and writing goes on",
        ErrorKind::NotFound => "; put the directory back, and writing goes on",
        _ if cfg!(unix) && matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => {
            "; raise the limit of open files, or keep fewer logs open"
        }
        _ => "",
    }
}

/// What tests can make fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Append,
    Write,
    Sync,
    Rename,
    SyncDirectory,
}

fn on<T>(
    operation: Operation,
    action: &'static str,
    path: &Path,
    run: impl FnOnce() -> io::Result<T>,
) -> Result<T, DiskError> {
    faults::trip(operation).and_then(|()| run()).map_err(|error| DiskError { action, path: path.to_owned(), error })
}

/// Makes a directory, and those above it, for the scheduler's user and group.
pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o750);
    builder.create(path)
}

/// Makes a file that must not exist; links are not followed. Opened so that every write goes to its end.
pub(super) fn create(path: &Path) -> Result<File, DiskError> {
    on(Operation::Create, "create", path, || {
        let mut options = OpenOptions::new();
        options.append(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
        options.open(path)
    })
}

/// Opens a file that must exist, so that every write goes to its end.
pub(super) fn append(path: &Path) -> Result<File, DiskError> {
    on(Operation::Append, "open", path, || OpenOptions::new().append(true).open(path))
}

/// Writes some of `bytes`, at least one, and says how many.
pub(super) fn write(mut file: &File, path: &Path, bytes: &[u8]) -> Result<usize, DiskError> {
    on(Operation::Write, "write", path, || {
        loop {
            match file.write(faults::shorten(bytes)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    })
}

/// Has a file's bytes on the disk, not just with the operating system.
pub(super) fn sync(file: &File, path: &Path) -> Result<(), DiskError> {
    on(Operation::Sync, "sync", path, || file.sync_data())
}

/// Gives a file another name.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), DiskError> {
    on(Operation::Rename, "rename", from, || fs::rename(from, to))
}

/// Has a directory's names on the disk.
pub(super) fn sync_directory(path: &Path) -> Result<(), DiskError> {
    on(Operation::SyncDirectory, "sync the directory", path, || {
        // Elsewhere a directory can't be opened as a file, and there is nothing to do.
        if !cfg!(unix) {
            return Ok(());
        }
        match File::open(path)?.sync_all() {
            // Some file systems have no such thing. That won't change, so don't try for ever.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
            result => result,
        }
    })
}

/// Whether something of this name exists, be it a dangling link.
pub(super) fn exists(path: &Path) -> Result<bool, DiskError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(DiskError { action: "look for", path: path.to_owned(), error }),
    }
}

#[cfg(not(test))]
mod faults {
    pub(super) fn trip(_: super::Operation) -> std::io::Result<()> {
        Ok(())
    }

    pub(super) fn shorten(bytes: &[u8]) -> &[u8] {
        bytes
    }
}

/// Failures on demand, for tests: permission bits and full disks are hard to have as root.
#[cfg(test)]
pub(super) mod faults {
    use std::cell::RefCell;
    use std::io;

    use super::Operation;

    #[derive(Debug, Default)]
    struct Plan {
        failing: Option<(Operation, i32)>,
        /// How many more bytes can be written before the disk is full.
        room: Option<usize>,
    }

    thread_local! {
        static PLAN: RefCell<Plan> = RefCell::default();
    }

    const ENOSPC: i32 = 28;

    /// From now on, every such operation of this thread fails with this error of the operating system.
    pub(in crate::file) fn fail(operation: Operation, errno: i32) {
        PLAN.with_borrow_mut(|plan| plan.failing = Some((operation, errno)));
    }

    /// This thread can write so many bytes, a few at a time, and then the disk is full.
    pub(in crate::file) fn leave_room(bytes: usize) {
        PLAN.with_borrow_mut(|plan| plan.room = Some(bytes));
    }

    /// All is well again.
    pub(in crate::file) fn heal() {
        PLAN.take();
    }

    pub(super) fn trip(operation: Operation) -> io::Result<()> {
        PLAN.with_borrow(|plan| match plan {
            Plan { failing: Some((failing, errno)), .. } if *failing == operation => {
                Err(io::Error::from_raw_os_error(*errno))
            }
            Plan { room: Some(0), .. } if operation == Operation::Write => Err(io::Error::from_raw_os_error(ENOSPC)),
            _ => Ok(()),
        })
    }

    pub(super) fn shorten(bytes: &[u8]) -> &[u8] {
        PLAN.with_borrow_mut(|plan| {
            let Some(room) = &mut plan.room else { return bytes };
            let count = bytes.len().min(*room).min(5);
            *room -= count;
            &bytes[..count]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_helps() {
        let text = |action, errno| {
            DiskError { action, path: "/logs/j.eventlog".into(), error: io::Error::from_raw_os_error(errno) }
                .to_string()
        };
        assert_eq!(
            text("write", 28),
            "could not write /logs/j.eventlog: No space left on device (os error 28); \
             free some space, and writing goes on"
        );
        assert_eq!(
            text("create", 2),
            "could not create /logs/j.eventlog: No such file or directory (os error 2); \
             put the directory back, and writing goes on"
        );
        assert_eq!(
            text("open", 24),
            "could not open /logs/j.eventlog: Too many open files (os error 24); \
             raise the limit of open files, or keep fewer logs open"
        );
        assert_eq!(text("sync", 5), "could not sync /logs/j.eventlog: Input/output error (os error 5)");
    }
}
