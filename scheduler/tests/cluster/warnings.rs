//! Warnings that the code under test logs.

use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// What a piece of code returned, and what it warned of.
pub struct Seen<T> {
    pub value: T,
    pub warnings: Vec<String>,
}

/// Runs `code` on this thread and collects its warnings and errors.
pub fn of<T>(code: impl FnOnce() -> T) -> Seen<T> {
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let subscriber = tracing_subscriber::registry().with(Collect(Arc::clone(&warnings)));
    let value = tracing::subscriber::with_default(subscriber, || {
        tracing::warn!("proof that warnings are seen");
        code()
    });
    let mut warnings = std::mem::take(&mut *warnings.lock().unwrap());
    assert_eq!(warnings.remove(0), "proof that warnings are seen");
    Seen { value, warnings }
}

struct Collect(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Collect {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() <= Level::WARN {
            let mut message = Message(String::new());
            event.record(&mut message);
            self.0.lock().unwrap().push(message.0);
        }
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
