//! No thread of a broker may ever panic. Panics of test threads are the tests' own.

use std::sync::Once;

use parking_lot::Mutex;

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static HOOK: Once = Once::new();

/// Names of threads that run a broker's code: its own, and the runtime's workers.
const BROKER_THREADS: [&str; 4] = ["owner", "maintenance", "journal-", "tokio-"];

pub(crate) fn watch() {
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default();
            if BROKER_THREADS.iter().any(|n| name.starts_with(n)) {
                PANICS.lock().push(format!("thread {name}: {info}"));
            }
            before(info);
        }));
    });
}

/// Panics of brokers' threads in this process, since the first [`crate::TestBroker`].
pub fn broker_panics() -> Vec<String> {
    PANICS.lock().clone()
}
