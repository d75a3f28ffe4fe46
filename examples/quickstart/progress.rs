//! One line that says what goes on, where someone is looking.

use std::fmt::{self, Write as _};
use std::io::{IsTerminal, Write as _, stderr};

/// Longest line that is shown (characters). One that wraps can't be rewritten.
const WIDTH: usize = 79;

/// A status line on standard error; nothing at all when that is no terminal, or one that can't rewrite a line.
pub(crate) struct Progress {
    visible: bool,
    /// Something stands there now.
    shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let rewritable = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { visible: stderr().is_terminal() && rewritable, shown: false }
    }

    /// Replaces the line.
    pub(crate) fn show(&mut self, text: fmt::Arguments<'_>) {
        if self.visible {
            let mut line = String::new();
            // Neither can fail in a way that matters: this is decoration.
            let _ = write!(line, "{text}");
            let line: String = line.chars().take(WIDTH).collect();
            let _ = write!(stderr(), "\r\x1b[2K{line}");
            self.shown = true;
        }
    }

    /// Leaves an empty line to whoever writes next.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(stderr(), "\r\x1b[2K");
        }
    }
}

/// However the program ends, its last status isn't left on the screen.
impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
