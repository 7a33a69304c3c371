//! Writes the history down while it happens.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rustix::time::{ClockId, clock_gettime};
use tidemark_histcheck::history::{Event, VERSION, line};

/// Nanoseconds of the machine's monotonic clock: the same in every process.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Both are small and positive: the clock counts from the machine's start.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

struct Out {
    file: BufWriter<File>,
    /// Why a line could not be written: then it may be missing in the middle.
    failed: Option<std::io::Error>,
}

pub struct Recorder {
    out: Mutex<Out>,
    next: AtomicU64,
    pub acked: AtomicU64,
    pub ended: AtomicU64,
    faults: Mutex<BTreeMap<String, u64>>,
}

impl Recorder {
    /// # Errors
    /// When the file cannot be made.
    pub fn new(path: &Path, seed: u64) -> Result<Recorder> {
        let file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
        let recorder = Recorder {
            out: Mutex::new(Out {
                file: BufWriter::with_capacity(1 << 20, file),
                failed: None,
            }),
            // Other programs that record count from their own number << 32 on.
            next: AtomicU64::new(1),
            acked: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            faults: Mutex::default(),
        };
        recorder.write(&Event::History {
            version: VERSION,
            seed,
        });
        Ok(recorder)
    }

    /// A number that is unique in the history: a record's value, a transaction's number.
    pub fn unique(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn write(&self, event: &Event) {
        match event {
            Event::Sent { error: None, .. } => drop(self.acked.fetch_add(1, Ordering::Relaxed)),
            Event::End { error: None, .. } => drop(self.ended.fetch_add(1, Ordering::Relaxed)),
            Event::Fault { fault, .. } => {
                *locked(&self.faults).entry(fault.clone()).or_insert(0) += 1;
            }
            _ => {}
        }
        let mut line = line(event);
        line.push('\n');
        let mut out = locked(&self.out);
        if let Err(error) = out.file.write_all(line.as_bytes()) {
            out.failed.get_or_insert(error);
        }
    }

    /// # Errors
    /// When the file cannot be written, or an event could not be since it was made.
    pub fn flush(&self) -> Result<()> {
        let mut out = locked(&self.out);
        let earlier = out.failed.take().map_or(Ok(()), Err);
        earlier
            .and_then(|()| out.file.flush())
            .context("the history cannot be written")
    }

    pub fn faults(&self) -> BTreeMap<String, u64> {
        locked(&self.faults).clone()
    }
}

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kafka's name of what went wrong, or one that the checker knows.
pub fn error_name(error: &KafkaError) -> String {
    match error {
        KafkaError::Transaction(error) => code_name(error.code()),
        other => other
            .rdkafka_error_code()
            .map_or_else(|| "UNKNOWN".to_owned(), code_name),
    }
}

fn code_name(code: RDKafkaErrorCode) -> String {
    match code {
        RDKafkaErrorCode::PurgeQueue => "NEVER_SENT".to_owned(),
        RDKafkaErrorCode::MessageTimedOut | RDKafkaErrorCode::OperationTimedOut => {
            "TIMED_OUT".to_owned()
        }
        RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::AllBrokersDown => {
            "DISCONNECTED".to_owned()
        }
        other => {
            let mut name = String::new();
            for letter in format!("{other:?}").chars() {
                if letter.is_ascii_uppercase() && !name.is_empty() {
                    name.push('_');
                }
                name.push(letter.to_ascii_uppercase());
            }
            name
        }
    }
}
