//! The files beside a sealed segment, read as Kafka lays them out.

mod support;

use support::*;
use tidemark_disk::{Disk, SimDisk, read_all};
use tidemark_partition_log::*;
use tidemark_record_batch::{ControlType, batches};
use tidemark_types::*;

fn be<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().unwrap()
}

#[test]
fn a_sealed_segment_has_kafkas_indexes() {
    let disk = SimDisk::new(1);
    let store = open_store(&disk);
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    roll_at(&log, 30_000);
    let mut offset = 0;
    let mut index = 0;
    let mut push = |bytes, control| {
        index += 1;
        let batch = tail(bytes, index, control);
        offset = batch.last_offset + 1;
        append(&log, batch, None);
        offset
    };
    // Timestamps rise in steps, with one that stands out early.
    let mut next = push(data(0, &[900, 10], &[b'v'; 500]), None);
    for n in 1..=20 {
        next = push(data(next, &[n * 100, n * 100 + 1, 3], &[b'v'; 400]), None);
    }
    let abort = ControlMeta {
        control_type: ControlType::Abort,
        txn_first_offset: Some(2),
    };
    let marker_offset = next;
    next = push(marker(next, 77, ControlType::Abort), Some(abort));
    let commit = ControlMeta {
        control_type: ControlType::Commit,
        txn_first_offset: Some(5),
    };
    next = push(marker(next, 78, ControlType::Commit), Some(commit));
    // An abort of a transaction that wrote nothing here leaves no entry.
    let empty = ControlMeta {
        control_type: ControlType::Abort,
        txn_first_offset: None,
    };
    next = push(marker(next, 79, ControlType::Abort), Some(empty));
    // Too large for the first segment.
    push(data(next, &[5], &[b'v'; 20_000]), None);

    let writer = write_behind(&store);
    let report = writer
        .flush(&log, Tick(u64::MAX), &FlushPolicy::FORCE)
        .unwrap();
    assert_eq!((report.segments_created, report.segments_sealed), (2, 1));
    let read = |name: &str| read_all(&disk, &log.dir().join(name)).unwrap();
    let base = "00000000000000000000";

    let bytes = read(&format!("{base}.log"));
    let mut in_log = Vec::new();
    for batch in batches(&bytes) {
        let (header, range) = batch.unwrap();
        in_log.push((
            range.start as i32,
            header.last_offset() as i32,
            header.max_timestamp,
        ));
    }
    assert_eq!(in_log.len(), 24);

    let offsets = read(&format!("{base}.index"));
    assert!(offsets.len() >= 5 * 8 && offsets.len().is_multiple_of(8));
    let mut last_position = 0;
    let mut positions = Vec::new();
    for entry in offsets.chunks_exact(8) {
        let relative = i32::from_be_bytes(be(entry, 0));
        let position = i32::from_be_bytes(be(entry, 4));
        // An entry is a batch's last offset and where the batch begins.
        assert!(in_log.iter().any(|b| (b.0, b.1) == (position, relative)));
        assert!(position - last_position > 4096);
        last_position = position;
        positions.push(position);
    }

    let times = read(&format!("{base}.timeindex"));
    assert!(times.len().is_multiple_of(12));
    let mut last = i64::MIN;
    for entry in times.chunks_exact(12) {
        let timestamp = i64::from_be_bytes(be(entry, 0));
        let relative = i32::from_be_bytes(be(entry, 8));
        assert!(timestamp > last, "time index entries rise");
        assert!(in_log.iter().any(|b| (b.1, b.2) == (relative, timestamp)));
        last = timestamp;
    }
    // The last entry is the segment's largest timestamp.
    assert_eq!(last, in_log.iter().map(|b| b.2).max().unwrap());

    let txns = read(&format!("{base}.txnindex"));
    assert_eq!(txns.len(), 34);
    assert_eq!(i16::from_be_bytes(be(&txns, 0)), 0);
    let fields: Vec<i64> = (0..4)
        .map(|n| i64::from_be_bytes(be(&txns, 2 + n * 8)))
        .collect();
    assert_eq!(fields, [77, 2, marker_offset, marker_offset + 1]);

    // The segment that still grows has none.
    let names: Vec<String> = disk
        .list(log.dir())
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .filter(|name| !name.starts_with(base))
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn segments_are_whole_batches_in_order_without_a_gap() {
    let disk = SimDisk::new(1);
    let store = open_store(&disk);
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    roll_at(&log, 1_000);
    let mut model = Model::default();
    for n in 0..50 {
        append(&log, model.next(1 + n % 3, n * 10), None);
    }
    let writer = write_behind(&store);
    for confirmed in [70, 80, 250, 500] {
        writer
            .flush(&log, Tick(confirmed), &FlushPolicy::FORCE)
            .unwrap();
    }
    let mut all = Vec::new();
    for segment in log.segments() {
        let path = log.dir().join(format!("{:020}.log", segment.base_offset));
        let bytes = read_all(&disk, &path).unwrap();
        assert_eq!(bytes.len() as u64, segment.log_bytes);
        assert!(bytes.len() <= 1_000 || segment.entries == 1);
        assert_eq!(
            crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes) as u32,
            segment.log_crc
        );
        all.extend_from_slice(&bytes);
    }
    assert_eq!(all, model.read(0, i64::MAX, usize::MAX, true));
    assert_eq!(log.tail_start_offset(), model.end());
}
