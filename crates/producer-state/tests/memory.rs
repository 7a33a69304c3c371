//! What a producer costs that a partition remembers. A test program of its own: it looks at the whole
//! process.

use tidemark_producer_state::PartitionProducers;
use tidemark_record_batch::{BatchBuilder, BatchHeader};
use tidemark_types::{ProducerEpoch, ProducerId};

/// DESIGN: with its place in the map and the allocator's share.
const BYTES_PER_PRODUCER: u64 = 200;
const PRODUCERS: u64 = 200_000;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells of itself");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.expect("resident memory in KiB") << 10
}

#[test]
fn an_idle_producer_takes_at_most_200_bytes() {
    let mut producers = PartitionProducers::new();
    let header = |n: u64| {
        let batch = BatchBuilder::new(0)
            .producer(ProducerId(n as i64), ProducerEpoch(0), 0)
            .push(None, Some(b"v"))
            .build();
        let mut header = BatchHeader::parse(&batch).expect("our own batch");
        header.base_offset = n as i64;
        header
    };
    // Ids come nearly in order, as they are handed out so: every thousandth is one of before.
    let ids: Vec<u64> = (0..PRODUCERS).map(|n| n ^ (n % 1_000 / 999)).collect();
    let headers: Vec<BatchHeader> = ids.into_iter().map(header).collect();
    let before = resident_bytes();
    for (n, header) in headers.iter().enumerate() {
        let mut header = *header;
        header.base_offset = n as i64;
        producers.apply_append(&header, 0);
    }
    let each = (resident_bytes() - before) / PRODUCERS;
    println!("{each} bytes for each of {} producers", producers.len());
    assert!(producers.len() as u64 >= PRODUCERS * 99 / 100);
    assert!(each <= BYTES_PER_PRODUCER, "{each} bytes");
}
