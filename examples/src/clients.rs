//! What the drivers of proofs set their clients up with, and where they say that one could not go on.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;

/// Settings of a client whose broker dies and comes back.
pub fn config(address: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", address)
        .set("reconnect.backoff.ms", "20")
        .set("reconnect.backoff.max.ms", "200")
        // As in the word count: one broker, and librdkafka's issue 5511.
        .set("metadata.recovery.strategy", "none");
    config
}

/// Settings of an idempotent producer that has many small batches in flight and gives none of them up.
pub fn many_batches_in_flight(mut config: ClientConfig) -> ClientConfig {
    config
        .set("enable.idempotence", "true")
        .set("max.in.flight.requests.per.connection", "5")
        .set("linger.ms", "1")
        .set("batch.num.messages", "20")
        .set("message.timeout.ms", "0");
    config
}

/// # Errors
/// When a topic cannot be made.
pub fn create_topics(address: &str, topics: &[NewTopic<'_>], limit: Duration) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> = config(address).create()?;
    let options = AdminOptions::new().operation_timeout(Some(limit));
    for result in futures_executor::block_on(admin.create_topics(topics, &options))? {
        if let Err((topic, code)) = result {
            bail!("cannot create {topic}: {code}");
        }
    }
    Ok(())
}

/// Clients that could not go on: a failure of the run, whatever else is found.
#[derive(Default)]
pub struct Complaints(Mutex<usize>);

impl Complaints {
    pub fn add(&self, text: &str) {
        eprintln!("{text}");
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    pub fn count(&self) -> usize {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
