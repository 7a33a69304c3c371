//! No bytes make the reader panic, and it never takes memory for a claimed count.

use proptest::collection::vec;
use proptest::prelude::*;
use tidemark_histcheck::{
    Block, Checkpoint, Frame, GroupRecord, Identity, MemoryFiles, MetadataRecord, PartitionId,
    SegmentsBlock, SlotHeader, StateBlock, TickEntry, TickHeader, TopicId, appends, inspect,
    parse_batch, records,
};

/// A batch header with a CRC that matches, so that what lies behind it is looked at.
fn with_crc(mut batch: Vec<u8>) -> Vec<u8> {
    if batch.len() >= 61 {
        let length = (batch.len() - 12) as i32;
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        batch[16] = 2;
        let crc = crc32c::crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
    }
    batch
}

fn block(kind: u16, topic: u8, payload: &[u8]) -> Block {
    let mut id = [0; 16];
    id[15] = topic;
    Block {
        position: 56,
        kind,
        format_version: 1,
        partition: PartitionId {
            topic: TopicId(id),
            partition: 0,
        },
        stamp: 1,
        payload: payload.into(),
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..400), topic in 0u8..5) {
        let _ = Identity::parse(&bytes);
        let _ = SlotHeader::parse(&bytes);
        let _ = Frame::parse(&bytes);
        let _ = appends(&bytes);
        let _ = Checkpoint::parse("f", &bytes);
        let _ = TickHeader::parse(&bytes);
        let _ = TickEntry::parse(&bytes, 0);
        let _ = parse_batch(&bytes);
        let batch = with_crc(bytes.clone());
        let _ = parse_batch(&batch);
        let _ = records(&batch);
        let _ = SegmentsBlock::parse(&block(1, topic, &bytes));
        let mut state = vec![1];
        state.extend(&bytes);
        let _ = StateBlock::parse(&block(2, topic, &state));
        let (key, value) = bytes.split_at(bytes.len() / 2);
        let _ = GroupRecord::parse(key, Some(value), 0);
        let _ = MetadataRecord::parse(key, value);
    }

    #[test]
    fn a_directory_of_any_bytes_is_told_and_never_panics(
        slot in vec(any::<u8>(), 0..9000),
        checkpoint in vec(any::<u8>(), 0..300),
        log in vec(any::<u8>(), 0..300),
    ) {
        let mut files = MemoryFiles::default();
        let partition = format!("partitions/{}", PartitionId::METADATA);
        files.0.insert("journal/000000.slot".to_owned(), slot);
        files.0.insert(format!("checkpoints/checkpoint-{:020}", 3), checkpoint);
        files.0.insert(format!("{partition}/{:020}.log", 0), log);
        let inspection = inspect(&files, &mut |_| {});
        prop_assert!(inspection.faults().count() > 0);
    }
}

#[test]
fn a_claimed_count_reserves_nothing() {
    let mut payload = vec![1];
    payload.extend(u32::MAX.to_be_bytes());
    assert!(appends(&payload).is_err());
    let mut state = vec![1];
    state.extend([0; 16]);
    state.extend(u32::MAX.to_be_bytes());
    assert!(StateBlock::parse(&block(2, 9, &state)).is_err());
}

/// Snappy says first how long the text is. Six bytes cannot make 174 MB.
#[test]
fn a_snappy_block_that_claims_more_than_its_bytes_can_make_is_not_believed() {
    let mut batch = vec![0; 61];
    batch[22] = 2;
    batch[60] = 1;
    batch.extend([0xff, 0x82, 0x82, 0x53, 0x53]);
    let error = records(&with_crc(batch)).unwrap_err();
    assert!(error.what.contains("snappy: a block of 174"), "{error:?}");
}
