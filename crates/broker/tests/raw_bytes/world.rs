//! Data of every kind: plain, idempotent and transactional batches, compressed ones, several
//! segments, groups, a transaction that stays open, a topic that is deleted.

use tidemark_testkit::{Batch, RawClient, TxnProducer, WALL_START_MS};

pub const PARTITIONS: [(&str, i32); 4] = [("t", 0), ("t", 1), ("t", 2), ("stamped", 0)];
pub const GROUPS: [&str; 4] = ["g-plain", "g-committed", "g-aborted", "g-open"];

pub struct World {
    open: TxnProducer,
    idempotent: (i64, i16),
    sequence: i32,
    round: i64,
}

impl World {
    pub async fn new(client: &mut RawClient) -> World {
        let small = [("segment.bytes", "1048576")];
        client.create_topic_with("t", 3, &small).await;
        let stamped = [("message.timestamp.type", "LogAppendTime")];
        client.create_topic_with("stamped", 1, &stamped).await;
        client.create_topic("doomed", 2).await;
        let doomed = Batch::of(&["gone"]).build();
        client.produce("doomed", 1, doomed).await.unwrap();
        client.delete_topic("doomed").await;
        let mut open = TxnProducer::init(client, "open").await;
        begin(client, &mut open, 0).await;
        World {
            open,
            idempotent: client.init_producer_id(None).await.unwrap(),
            sequence: 0,
            round: 0,
        }
    }

    /// One more of everything, 600 KB and more in each partition of `t`.
    pub async fn go_on(&mut self, client: &mut RawClient) {
        let round = self.round;
        self.round += 1;
        let time = WALL_START_MS + round * 1000;
        let large = vec![b'x'; 100_000];
        for partition in 0..3 {
            for n in 0..6 {
                let values = [format!("{round}-{n}").into_bytes(), large.clone()];
                let batch = Batch::of(&values).at(time - n).build();
                client.produce("t", partition, batch).await.unwrap();
            }
        }
        let stamped = Batch::of(&["stamped"]).at(time).build();
        client.produce("stamped", 0, stamped).await.unwrap();
        let (id, epoch) = self.idempotent;
        for _ in 0..7 {
            let batch = Batch::of(&["a", "b"]).producer(id, epoch, self.sequence);
            client
                .produce("t", 0, batch.at(time).build())
                .await
                .unwrap();
            self.sequence += 2;
        }
        for (id, commit) in [("commits", true), ("aborts", false)] {
            let mut producer = TxnProducer::init(client, id).await;
            producer.enrol(client, &[("t", 1), ("t", 2)]).await.unwrap();
            for partition in 1..3 {
                let values = [format!("{id}-{round}")];
                producer
                    .send(client, "t", partition, &values)
                    .await
                    .unwrap();
            }
            let group = if commit { "g-committed" } else { "g-aborted" };
            let offsets = [("t", 1, 100 + round)];
            producer
                .send_offsets(client, group, &offsets)
                .await
                .unwrap();
            producer.end(client, commit).await.unwrap();
        }
        let offsets = [("t", 0, round), ("stamped", 0, 7)];
        client.commit_offsets("g-plain", &offsets).await.unwrap();
        if round > 1 {
            // A whole segment and a piece of the next, in the end.
            let start = round * 9;
            assert_eq!(client.delete_records("t", 1, start).await, Ok(start));
        }
        self.open.end(client, round % 2 == 0).await.unwrap();
        begin(client, &mut self.open, round).await;
    }
}

/// A transaction that stays open over what comes next.
async fn begin(client: &mut RawClient, producer: &mut TxnProducer, round: i64) {
    producer.enrol(client, &[("t", 0), ("t", 2)]).await.unwrap();
    for partition in [0, 2] {
        let values = [format!("open-{round}")];
        producer
            .send(client, "t", partition, &values)
            .await
            .unwrap();
    }
    let offsets = [("t", 0, 1000 + round)];
    producer
        .send_offsets(client, "g-open", &offsets)
        .await
        .unwrap();
}
