//! A connection that was there before, and is to notice nothing.

use tidemark_testkit::{Batch, Isolation, RawClient, TestBroker};

/// A client of good will on a topic of its own.
pub struct Witness {
    client: RawClient,
    written: i64,
    asked: u64,
}

impl Witness {
    pub async fn of(broker: &TestBroker) -> Witness {
        let mut client = broker.client().await;
        client.create_topic("witness", 1).await;
        Witness {
            client,
            written: 0,
            asked: 0,
        }
    }

    /// Its connection is served as ever. Every now and then it also writes.
    pub async fn is_served(&mut self) {
        self.asked += 1;
        if self.asked % 64 == 1 {
            self.writes().await;
        }
        let ends = self
            .client
            .ends("witness", 1, Isolation::ReadCommitted)
            .await;
        assert_eq!(ends, [self.written]);
    }

    pub async fn writes(&mut self) {
        let batch = Batch::of(&["all is well"]).build();
        let produced = self.client.produce("witness", 0, batch).await;
        assert_eq!(produced, Ok(self.written));
        self.written += 1;
    }
}
