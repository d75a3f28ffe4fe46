//! Counts the line that the adaptive planner logs, at debug level, when it has planned anew.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use log::{Level, LevelFilter, Log, Metadata, Record};
use tokio::sync::{Mutex, MutexGuard};

const TARGET: &str = "ballista_scheduler::state::aqe::planner";
const LINE: &str = "Total time taken for stage replan";

static REPLANS: AtomicU32 = AtomicU32::new(0);
static TURN: Mutex<()> = Mutex::const_new(());

struct Counter;

impl Log for Counter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET && metadata.level() <= Level::Debug
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) && record.args().to_string().starts_with(LINE) {
            REPLANS.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn flush(&self) {}
}

/// A test's turn: nobody else plans meanwhile.
pub struct Turn {
    _turn: MutexGuard<'static, ()>,
}

pub async fn turn() -> Turn {
    static INSTALL: Once = Once::new();
    let turn = TURN.lock().await;
    INSTALL.call_once(|| {
        log::set_logger(&Counter).unwrap();
        log::set_max_level(LevelFilter::Debug);
    });
    Turn { _turn: turn }
}

impl Turn {
    /// Replans since the process began.
    pub fn replans(&self) -> u32 {
        REPLANS.load(Ordering::SeqCst)
    }
}
