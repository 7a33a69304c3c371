use proptest::prelude::*;
use tidemark_abort_index::{AbortIndex, AbortedTxn, DecodeError, TXN_INDEX_ENTRY_BYTES};
use tidemark_types::ProducerId;

fn txn(producer_id: i64, first_offset: i64, last_offset: i64) -> AbortedTxn {
    AbortedTxn {
        producer_id: ProducerId(producer_id),
        first_offset,
        last_offset,
        last_stable_offset: last_offset + 1,
    }
}

fn index(txns: &[AbortedTxn]) -> AbortIndex {
    let mut index = AbortIndex::new();
    for &txn in txns {
        index.push(txn);
        index.check();
    }
    index
}

/// What a lookup means, said without an index.
fn naive(txns: &[AbortedTxn], fetch_offset: i64, upper_bound: i64) -> Vec<AbortedTxn> {
    if fetch_offset >= upper_bound {
        return Vec::new();
    }
    txns.iter()
        .copied()
        .filter(|txn| txn.last_offset >= fetch_offset && txn.first_offset < upper_bound)
        .collect()
}

#[test]
fn case_a6_the_list_is_complete() {
    // Records 0, 1 plain, 2 of P1, 3 plain, 4 of P2; markers at 5 and 6.
    let (p1, p2) = (txn(1, 2, 5), txn(2, 4, 6));
    let index = index(&[p1, p2]);
    assert_eq!(index.lookup(2, 7), [p1, p2]);
    assert_eq!(index.lookup(5, 7), [p1, p2]);
    assert_eq!(index.lookup(6, 7), [p2]);
    assert_eq!(index.lookup(7, 8), []);
    assert_eq!(index.lookup(0, 2), []);
    assert_eq!(index.lookup(0, 3), [p1]);
    assert_eq!(index.lookup(0, 4), [p1]);
    assert_eq!(index.lookup(0, 5), [p1, p2]);
    assert_eq!(index.lookup(3, 3), []);
}

#[test]
fn a_transaction_open_across_many_others_is_found() {
    // Producer 1 begins at 0 and is aborted after 10,000 others, each of one record.
    let mut txns: Vec<AbortedTxn> = (0..10_000).map(|i| txn(2, 1 + 2 * i, 2 + 2 * i)).collect();
    let long = txn(1, 0, 20_001);
    txns.push(long);
    let index = index_unchecked(&txns);
    index.check();
    assert_eq!(index.lookup(0, 1), [long]);
    assert_eq!(index.lookup(7, 9), [txn(2, 7, 8), long]);
    assert_eq!(index.lookup(20_001, 20_002), [long]);
}

fn index_unchecked(txns: &[AbortedTxn]) -> AbortIndex {
    let mut index = AbortIndex::new();
    for &txn in txns {
        index.push(txn);
    }
    index
}

#[test]
fn below_the_log_start_entries_go() {
    let txns: Vec<AbortedTxn> = (0..100).map(|i| txn(1, 10 * i, 10 * i + 5)).collect();
    let mut index = index(&txns);
    for log_start in [0, 5, 6, 400, 401, 995, 996] {
        index.remove_below(log_start);
        index.check();
        let kept: Vec<AbortedTxn> = txns
            .iter()
            .copied()
            .filter(|txn| txn.last_offset >= log_start)
            .collect();
        assert_eq!(index.entries(), kept);
        assert_eq!(index.lookup(0, 2_000), kept);
    }
    assert!(index.is_empty());
    index.push(txn(1, 0, 2_000));
    assert_eq!(index.lookup(0, 1), [txn(1, 0, 2_000)]);
}

#[test]
fn a_segments_part_is_chosen_by_marker() {
    let index = index(&[txn(1, 0, 5), txn(2, 1, 9), txn(3, 6, 12)]);
    assert_eq!(index.ending_in(5, 12), [txn(1, 0, 5), txn(2, 1, 9)]);
    assert_eq!(index.ending_in(12, 5), []);
}

#[test]
#[should_panic(expected = "does not follow")]
fn markers_come_in_order() {
    index(&[txn(1, 0, 5), txn(2, 1, 5)]);
}

#[test]
fn an_entry_has_kafkas_bytes() {
    let entry = AbortedTxn {
        producer_id: ProducerId(1),
        first_offset: 2,
        last_offset: 3,
        last_stable_offset: 4,
    };
    let mut expected = [0; TXN_INDEX_ENTRY_BYTES];
    (expected[9], expected[17], expected[25], expected[33]) = (1, 2, 3, 4);
    assert_eq!(entry.to_txn_index_entry(), expected);
    assert_eq!(AbortedTxn::from_txn_index_entry(&expected), Ok(entry));
    expected[1] = 1;
    assert_eq!(
        AbortedTxn::from_txn_index_entry(&expected),
        Err(DecodeError::Version(1))
    );
}

#[test]
fn damaged_bytes_are_refused() {
    let good = index(&[txn(1, 0, 5), txn(2, 1, 9)]).encode();
    for length in 0..good.len() {
        assert_eq!(
            AbortIndex::decode(&good[..length]),
            Err(DecodeError::Length),
            "{length}"
        );
    }
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        AbortIndex::decode(&bytes)
    };
    assert_eq!(changed(0, 2), Err(DecodeError::Version(2)));
    assert_eq!(changed(1, 0xff), Err(DecodeError::Length));
    assert_eq!(changed(4, 3), Err(DecodeError::Length));
    // The second entry's last offset, then its first.
    assert_eq!(changed(5 + 34 + 25, 5), Err(DecodeError::Order));
    assert_eq!(changed(5 + 34 + 17, 10), Err(DecodeError::Order));
    // A negative first offset.
    assert_eq!(changed(5 + 10, 0x80), Err(DecodeError::Order));
}

/// Transactions of overlapping lengths: each marker some offsets after the last, each first offset
/// anywhere before.
fn txns() -> impl Strategy<Value = Vec<AbortedTxn>> {
    prop::collection::vec((1i64..4, 0i64..3_000, 0i64..5), 0..1_500).prop_map(|steps| {
        let mut last_offset = 0;
        steps
            .into_iter()
            .map(|(step, length, producer_id)| {
                last_offset += step;
                // Most are short, some reach far back.
                let length = if length < 2_700 { length % 5 } else { length };
                txn(producer_id, (last_offset - length).max(0), last_offset)
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_index_finds_what_a_list_finds(
        txns in txns(),
        lookups in prop::collection::vec((0i64..5_000, 0i64..400), 1..40),
        log_starts in prop::collection::vec(0i64..4_000, 0..3),
    ) {
        let mut index = index_unchecked(&txns);
        index.check();
        let mut list = txns;
        for log_start in [0].into_iter().chain(log_starts) {
            index.remove_below(log_start);
            list.retain(|txn| txn.last_offset >= log_start);
            index.check();
            for &(fetch_offset, length) in &lookups {
                let upper_bound = fetch_offset + length;
                prop_assert_eq!(
                    index.lookup(fetch_offset, upper_bound),
                    naive(&list, fetch_offset, upper_bound)
                );
            }
        }
        prop_assert_eq!(index.entries(), &list[..]);
        prop_assert_eq!(AbortIndex::decode(&index.encode()), Ok(index));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(index) = AbortIndex::decode(&bytes) {
            index.check();
        }
    }
}

/// What compaction has removed to the last is not told any more; the rest is found as before.
#[test]
fn transactions_whose_markers_are_gone_are_forgotten() {
    let txn = |n: i64| AbortedTxn {
        producer_id: ProducerId(n % 7),
        first_offset: n * 10,
        last_offset: n * 10 + 5,
        last_stable_offset: n * 10 + 6,
    };
    let mut index = AbortIndex::new();
    (0..3_000).for_each(|n| index.push(txn(n)));
    index.remove_below(100);
    let gone: Vec<i64> = (0..3_000)
        .filter(|n| n % 3 == 0)
        .map(|n| n * 10 + 5)
        .collect();
    index.remove_markers(&gone);
    let left: Vec<AbortedTxn> = (10..3_000).filter(|n| n % 3 != 0).map(txn).collect();
    assert_eq!(index.entries(), left);
    assert_eq!(index.lookup(0, i64::MAX), left);
    assert_eq!(index.lookup(20_000, 20_100).len(), 7);
    index.remove_markers(&[]);
    assert_eq!(index.entries(), left);
}

/// At every length, among them those at which a level comes or goes.
#[test]
fn what_was_taken_back_was_never_there() {
    // First offsets in no order, as of transactions of very different lengths.
    let all: Vec<AbortedTxn> = (0..2_200)
        .map(|n: i64| txn(n % 7, n - (n * 7_919) % (n + 1), n))
        .collect();
    for keep in [0, 1, 31, 32, 33, 1_023, 1_024, 1_025, 2_199, 2_200] {
        let mut cut = index(&all[..2_100.max(keep)]);
        cut.truncate(keep as i64);
        cut.check();
        assert_eq!(cut.entries(), &all[..keep]);
        for more in &all[keep..(keep + 40).min(all.len())] {
            cut.push(*more);
            cut.check();
        }
        let upper = all.len() as i64;
        let kept = &all[..cut.len()];
        assert_eq!(cut.lookup(upper / 2, upper), naive(kept, upper / 2, upper));
    }
}
