//! Write-behind beside others: in pieces when there is time, and not at all when there is none.

mod support;

use std::sync::Arc;

use parking_lot::Mutex;
use support::*;
use tidemark_disk::SimDisk;
use tidemark_partition_log::*;
use tidemark_types::*;

/// Has time for so many pieces.
struct Watching {
    turns_left: Mutex<usize>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Beside for Watching {
    fn wait_for_turn(&self, bytes: u64) -> bool {
        let mut left = self.turns_left.lock();
        let has_time = *left > 0;
        *left = left.saturating_sub(1);
        let what = match has_time {
            true => format!("a piece of {bytes}"),
            false => "no time".to_string(),
        };
        self.seen.lock().push(what);
        has_time
    }

    fn room_made(&self) {
        self.seen.lock().push("room".to_string());
    }
}

#[test]
fn large_writes_go_to_the_disk_in_pieces_while_there_is_time() {
    let store = open_store(&SimDisk::new(1));
    let mut writer = WriteBehind::new(&store, WriteBehindSettings::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    writer.set_beside(Box::new(Watching {
        turns_left: Mutex::new(3),
        seen: seen.clone(),
    }));
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    let mut model = Model::default();
    let mut flushed = |value_bytes: usize| {
        append(&log, model.next(1, value_bytes), None);
        let confirmed = Tick(model.batches.len() as u64 * 10);
        writer.flush(&log, confirmed, &FlushPolicy::FORCE).unwrap();
        assert_eq!(read_all(&log), model.read(0, i64::MAX, usize::MAX, true));
        assert_eq!(store.tail_bytes(), 0);
        std::mem::take(&mut *seen.lock())
    };
    assert_eq!(flushed(1_000), ["room"], "little waits for the next sync");
    let pieces = flushed(600_000);
    assert_eq!(pieces[..2], ["a piece of 262144", "a piece of 262144"]);
    assert_eq!(pieces.len(), 4, "{pieces:?}");
    assert_eq!(pieces[3], "room");
    assert_eq!(
        flushed(600_000),
        ["no time", "room"],
        "written all the same"
    );
    writer.sync_dirty().unwrap();
}
