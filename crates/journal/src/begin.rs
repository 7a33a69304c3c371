//! How does a journal begin that follows a lost one?

use std::path::Path;

use tidemark_disk::{Disk, OpenMode, create_dir_all_durable};
use tidemark_types::{JournalIndex, Tick};

use crate::JournalOptions;
use crate::error::JournalError;
use crate::frame::PAGE;
use crate::slot::{SlotFile, SlotHeader, write_header};

/// Zeroes written at a time.
const CHUNK: u64 = 1 << 20;

/// Makes a journal without records in `options.dir`, which holds none: its first record will be
/// `first_index`, above `highest_tick`. The journal before it ran at `epoch`; as nobody saw that one
/// end, [`crate::recover`] gives this one the next. Durable when this returns.
///
/// Errors: `Options` when the directory holds slots, I/O errors.
pub fn begin_at(
    disk: &dyn Disk,
    options: &JournalOptions,
    first_index: JournalIndex,
    highest_tick: Tick,
    epoch: u32,
) -> Result<(), JournalError> {
    let dir = &options.dir;
    create_dir_all_durable(disk, dir).map_err(io_error("cannot create", dir))?;
    let entries = disk.list(dir).map_err(io_error("cannot list", dir))?;
    if let Some(entry) = entries.first() {
        let what = format!("{} holds {:?} already", dir.display(), entry.name);
        return Err(JournalError::Options(what));
    }
    let slot_bytes = options.slot_bytes - options.slot_bytes % PAGE;
    let path = SlotFile::path_of(dir, 0);
    let header = SlotHeader {
        use_number: 1,
        first_index,
        released: first_index,
        highest_tick,
        epoch,
        ..SlotHeader::prepared(options.journal_id, slot_bytes)
    };
    let write = || {
        let file = disk.open(&path, OpenMode::CreateNew)?;
        file.allocate(0, slot_bytes)?;
        let zeroes = vec![0; CHUNK.min(slot_bytes) as usize];
        let mut pos = 0;
        while pos < slot_bytes {
            let len = CHUNK.min(slot_bytes - pos);
            file.write_at(&zeroes[..len as usize], pos)?;
            pos += len;
        }
        file.sync_data()?;
        disk.sync_dir(dir)?;
        write_header(&*file, &header)
    };
    write().map_err(io_error("cannot write", &path))?;
    Ok(())
}

fn io_error(action: &'static str, file: &Path) -> impl FnOnce(std::io::Error) -> JournalError {
    let file = file.to_path_buf();
    move |source| JournalError::Io {
        action,
        file,
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use tidemark_disk::SimDisk;

    use super::*;
    use crate::{After, AppendRequest, Journal, recover};

    #[test]
    fn a_journal_begins_anywhere_and_goes_on() {
        let disk = SimDisk::new(1);
        let options = JournalOptions {
            slot_bytes: 1 << 20,
            budget_bytes: 4 << 20,
            ..JournalOptions::new("/data/journal", [7; 16])
        };
        begin_at(&disk, &options, JournalIndex(500), Tick(9), 3).unwrap();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let refused = recover(
            shared.clone(),
            options.clone(),
            JournalIndex(1),
            &mut |_| Ok(()),
        );
        assert!(refused.is_err(), "what came before it is gone");

        let open = || {
            let mut seen = Vec::new();
            let recovery = recover(
                shared.clone(),
                options.clone(),
                JournalIndex(500),
                &mut |record| {
                    seen.push(record.index.0);
                    Ok(())
                },
            )
            .unwrap();
            (recovery, seen)
        };
        let (recovery, seen) = open();
        assert_eq!(
            (recovery.next_index, recovery.epoch),
            (JournalIndex(500), 4)
        );
        assert_eq!(recovery.highest_tick, Tick(9));
        assert!(seen.is_empty());
        let journal = recovery.start(Box::new(|_| {}));
        let after = After {
            epoch: 4,
            tick: Tick(9),
        };
        let request = AppendRequest {
            index: JournalIndex(500),
            tick: Tick(10),
            wall_ms: 0,
            pieces: vec![Bytes::from_static(b"first")],
            must_sync: true,
            unsettled: false,
        };
        journal.append(after, request);
        journal.shutdown();
        let (recovery, seen) = open();
        assert_eq!((recovery.epoch, seen), (4, vec![500]));
        assert!(begin_at(&disk, &options, JournalIndex(1), Tick(0), 0).is_err());
    }
}
