//! What an error of librdkafka's transactional producer asks of the program.

use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{Producer, ProducerContext, ThreadedProducer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing is decided: make the same call again.
    Retry,
    /// Abort the transaction.
    Abort,
    /// The producer is finished.
    GiveUp,
}

pub fn remedy(error: &KafkaError) -> Remedy {
    match error {
        KafkaError::Transaction(e) if e.is_fatal() => Remedy::GiveUp,
        KafkaError::Transaction(e) if e.is_retriable() => Remedy::Retry,
        KafkaError::Transaction(e) if e.txn_requires_abort() => Remedy::Abort,
        KafkaError::Flush(_) => Remedy::Retry,
        KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) => Remedy::Retry,
        KafkaError::MessageProduction(RDKafkaErrorCode::Fatal) => Remedy::GiveUp,
        KafkaError::MessageProduction(_) => Remedy::Abort,
        _ => Remedy::GiveUp,
    }
}

/// Repeats a call until its outcome is known, at most for `patience`.
///
/// # Errors
/// The last error of the call, when it is not to be retried or patience has run out.
pub fn decided(
    patience: Duration,
    mut call: impl FnMut() -> Result<(), KafkaError>,
) -> Result<(), KafkaError> {
    let started = Instant::now();
    loop {
        match call() {
            Err(error) if remedy(&error) == Remedy::Retry && started.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

/// Waits until everything that was sent is answered. The library's own flush looks only every 100 ms.
pub fn wait_for_deliveries<C>(producer: &ThreadedProducer<C>, limit: Duration)
where
    C: ProducerContext + 'static,
{
    let started = Instant::now();
    while producer.in_flight_count() > 0 && started.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(1));
    }
}
