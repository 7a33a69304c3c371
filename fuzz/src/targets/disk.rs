//! Files of a data directory. What the fuzzer begins with is the directory that is kept as it was
//! written by an earlier build (`crates/broker/tests/fixtures`).

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tidemark_audit::{Audit, Event, Kind, Which};
use tidemark_disk::{Disk, OpenMode, SimDisk, read_all};
use tidemark_histcheck::{DirFiles, Files, MemoryFiles, SegmentFiles, SlotHeader, TickHeader};
use tidemark_journal::{JournalOptions, recover};
use tidemark_owner::{Owner, Record};
use tidemark_partition_log::{
    BlockKind, LeaderEpochs, LogStore, PartitionLog, SegmentManifest, SegmentState, StoreSettings,
    TICK_ENTRY_BYTES, TICK_HEADER_BYTES, TickEntry, TickIndexHeader, read_latest,
};
use tidemark_types::{JournalIndex, LeaderEpoch, MonoTime, Tick, TopicId, TopicPartitionId};

use crate::common::options;
use crate::sealed;

const DATA: &str = "data";

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/broker/tests/fixtures/format-1")
}

/// Every file of the directory by its path in it.
fn files() -> &'static MemoryFiles {
    static ALL: LazyLock<MemoryFiles> = LazyLock::new(|| {
        let dir = DirFiles::new(fixture());
        let mut all = MemoryFiles::default();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in dir.list(&folder).expect("the fixture is there") {
                let path = match folder.as_str() {
                    "" => entry.name,
                    folder => format!("{folder}/{}", entry.name),
                };
                match entry.is_dir {
                    true => folders.push(path),
                    false => {
                        let bytes = std::fs::read(fixture().join(&path));
                        all.0.insert(path, bytes.expect("the fixture is there"));
                    }
                }
            }
        }
        all
    });
    &ALL
}

fn ending(with: &str) -> Vec<Vec<u8>> {
    let all = files().0.iter();
    let named = all.filter(|(path, _)| path.ends_with(with));
    named.map(|(_, bytes)| bytes.clone()).collect()
}

fn without_zeroes(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
    bytes.truncate(end);
    bytes
}

fn put(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let dir = path.parent().expect("a file is in a directory");
    disk.create_dir_all(dir).expect("a disk in memory");
    let file = disk
        .open(path, OpenMode::OpenOrCreate)
        .expect("a disk in memory");
    file.write_at(bytes, 0).expect("a disk in memory");
    file.sync_data().expect("a disk in memory");
    disk.sync_dir(dir).expect("a disk in memory");
}

pub fn slot(bytes: &[u8]) {
    let page = &bytes[..bytes.len().min(4096)];
    let header = SlotHeader::parse(page).ok().flatten();
    let mut bytes = bytes.to_vec();
    let length = header.as_ref().map_or(65_536, |header| header.slot_bytes);
    if let Ok(length) = usize::try_from(length)
        && (bytes.len()..=1 << 20).contains(&length)
    {
        bytes.resize(length, 0);
    }
    let disk = SimDisk::new(1);
    let dir = Path::new(DATA).join("journal");
    put(&disk, &dir.join("000000.slot"), &bytes);
    let options = JournalOptions {
        slot_bytes: 65_536,
        ..JournalOptions::new(&dir, header.map_or([0; 16], |header| header.journal_id))
    };
    let mut visit = |found: tidemark_journal::RecoveredRecord| {
        Record::decode(found.index, found.tick, found.wall_ms, &found.payload)
            .map(|_| ())
            .map_err(|e| e.to_string())
    };
    let _ = recover(Arc::new(disk), options, JournalIndex(1), &mut visit);
    let files = MemoryFiles([("journal/000000.slot".to_owned(), bytes)].into());
    tidemark_histcheck::slot_frames(&files, "journal/000000.slot", &mut |_| {});
    tidemark_histcheck::journal_frames(&files, 1, &mut |_| {});
}

pub fn slot_seeds() -> Vec<Vec<u8>> {
    ending(".slot").into_iter().map(without_zeroes).collect()
}

pub fn checkpoint(bytes: &[u8]) {
    const KNOWN: &[(BlockKind, u16)] = &[
        (BlockKind::SEGMENTS, SegmentManifest::FORMAT_VERSION),
        (BlockKind(tidemark_histcheck::STATE_BLOCK), 1),
    ];
    let bytes = sealed::checkpoint(bytes.to_vec());
    let generation = bytes.get(12..20).map_or(1, |eight| {
        u64::from_be_bytes(eight.try_into().expect("eight bytes"))
    });
    let name = format!("checkpoint-{generation:020}");
    let id = bytes
        .get(36..52)
        .map_or([0; 16], |id| id.try_into().expect("sixteen bytes"));
    let disk = SimDisk::new(1);
    let dir = Path::new(DATA).join("checkpoints");
    put(&disk, &dir.join(&name), &bytes);
    let ours = read_latest(&disk, &dir, id, KNOWN);
    let theirs = tidemark_histcheck::Checkpoint::parse(&name, &bytes);
    if let Ok(checkpoint) = &theirs {
        for block in &checkpoint.blocks {
            let _ = tidemark_histcheck::SegmentsBlock::parse(block);
            let _ = tidemark_histcheck::StateBlock::parse(block);
        }
    }
    if let Ok(Some(checkpoint)) = ours {
        let theirs = theirs.expect("the independent reader takes it too");
        assert_eq!(theirs.blocks.len(), checkpoint.blocks.len());
        let mut owner = Owner::new(options());
        for block in &checkpoint.blocks {
            match block.kind {
                BlockKind::SEGMENTS => drop(SegmentManifest::decode(&block.payload)),
                _ => drop(owner.restore_block(block.partition, block.stamp, &block.payload)),
            }
        }
    }
}

pub fn checkpoint_seeds() -> Vec<Vec<u8>> {
    let all = files().0.iter();
    let named = all.filter(|(path, _)| path.starts_with("checkpoints/"));
    named.map(|(_, bytes)| bytes.clone()).collect()
}

pub fn manifest(bytes: &[u8]) {
    if let Some(manifest) = SegmentManifest::decode(bytes) {
        let again = SegmentManifest::decode(&manifest.encode());
        assert_eq!(again.as_ref(), Some(&manifest));
    }
}

pub fn manifest_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for bytes in checkpoint_seeds() {
        let checkpoint = tidemark_histcheck::Checkpoint::parse("seed", &bytes);
        let blocks = checkpoint.expect("the fixture is good").blocks;
        let of_segments = blocks
            .iter()
            .filter(|b| b.kind == tidemark_histcheck::SEGMENTS_BLOCK);
        seeds.extend(of_segments.map(|block| block.payload.to_vec()));
    }
    seeds.sort();
    seeds.dedup();
    seeds.truncate(20);
    seeds
}

/// Two bytes that say how long the tick index is, the index, the segment.
pub fn segment(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let length = usize::from(u16::from_be_bytes(*length));
    let Some((ticks, log)) = rest.split_at_checked(length) else {
        return;
    };
    let ticks = sealed::tick_index(ticks.to_vec());
    let Ok(header) = TickHeader::parse(&ticks) else {
        return;
    };
    let base_offset = header.base_offset & 0xff_ffff;
    let names = SegmentFiles::new(header.partition, base_offset, 0);
    let files = MemoryFiles(
        [
            (names.log(), log.to_vec()),
            (names.tick_index(), ticks.clone()),
        ]
        .into(),
    );
    tidemark_histcheck::segment_batches(
        &files,
        &names,
        Some(header.partition),
        Some(header.directory_id),
        None,
        &mut |_| {},
    );

    let disk = SimDisk::new(1);
    let store = LogStore::open(
        Arc::new(disk.clone()),
        Path::new(DATA),
        header.directory_id,
        &StoreSettings::default(),
    );
    let store = store.expect("a new directory");
    let partition = TopicPartitionId::new(
        TopicId(header.partition.topic.0),
        header.partition.partition,
    );
    let dir = store.partition_dir(partition);
    put(&disk, &dir.join(format!("{base_offset:020}.log")), log);
    put(
        &disk,
        &dir.join(format!("{base_offset:020}.tickindex")),
        &ticks,
    );
    let entries = (ticks.len() - TICK_HEADER_BYTES) / TICK_ENTRY_BYTES;
    let last = ticks.chunks_exact(TICK_ENTRY_BYTES).skip(1).last();
    let Some(Ok(theirs)) = last.map(|entry| tidemark_histcheck::TickEntry::parse(entry, 0)) else {
        return;
    };
    let Some(next_offset) = (theirs.base_offset)
        .checked_add(i64::from(theirs.last_offset_delta))
        .and_then(|last| last.checked_add(1))
        .filter(|next| *next > base_offset)
    else {
        return;
    };
    let manifest = SegmentManifest {
        log_start_offset: base_offset,
        synced_end_offset: next_offset,
        end_offset: next_offset,
        first_needed_index: None,
        segments: vec![SegmentState {
            base_offset,
            generation: 0,
            next_offset,
            log_bytes: log.len() as u64,
            entries: entries as u64,
            max_timestamp: theirs.running_max_timestamp,
            last_tick: Tick(theirs.tick),
            log_crc: crc32c::crc32c(log),
            indexed: false,
        }],
        epochs: LeaderEpochs::from_entries(vec![(LeaderEpoch(0), base_offset)]).expect("one"),
        aborted: Default::default(),
        compacted: Default::default(),
        tail: Vec::new(),
    };
    let Ok(log) = PartitionLog::recover(&store, partition, manifest) else {
        return;
    };
    for from in [
        base_offset,
        (base_offset + next_offset) / 2,
        next_offset - 1,
    ] {
        let _ = log.read(from, next_offset, 1 << 20, true);
    }
    let _ = log.offset_for_timestamp(0, base_offset, next_offset);
    let _ = log.cut_at(Tick(theirs.tick / 2));
}

pub fn segment_seeds() -> Vec<Vec<u8>> {
    let all = files().0.iter();
    let logs = all.filter_map(|(path, log)| {
        let ticks = files()
            .0
            .get(&format!("{}.tickindex", path.strip_suffix(".log")?))?;
        let mut seed = u16::try_from(ticks.len()).ok()?.to_be_bytes().to_vec();
        seed.extend_from_slice(ticks);
        seed.extend_from_slice(log);
        Some(seed)
    });
    logs.filter(|seed| seed.len() < 32_000).collect()
}

pub fn tick_index(bytes: &[u8]) {
    let bytes = sealed::tick_index(bytes.to_vec());
    let theirs = TickHeader::parse(&bytes);
    if let Some(head) = bytes.first_chunk::<TICK_HEADER_BYTES>() {
        let ours = TickIndexHeader::decode(head);
        if let (Ok(_), Err(bad)) = (&ours, &theirs) {
            panic!("the independent reader does not take it: {bad:?}");
        }
    }
    for entry in bytes.chunks_exact(TICK_ENTRY_BYTES) {
        let ours = TickEntry::decode(entry.try_into().expect("an entry"));
        let theirs = tidemark_histcheck::TickEntry::parse(entry, 0);
        if let (Some(_), Err(bad)) = (&ours, &theirs) {
            panic!("the independent reader does not take it: {bad:?}");
        }
    }
}

pub fn tick_index_seeds() -> Vec<Vec<u8>> {
    let all = ending(".tickindex").into_iter();
    all.filter(|seed| seed.len() < 8_000).collect()
}

/// The first byte says which file.
pub fn data_dir(bytes: &[u8]) {
    let Some((&which, rest)) = bytes.split_first() else {
        return;
    };
    let mut all = files().clone();
    let at = usize::from(which) % all.0.len();
    let (path, file) = all.0.iter_mut().nth(at).expect("there are files");
    let bytes = match path.starts_with("checkpoints/") {
        true => sealed::checkpoint(rest.to_vec()),
        false => rest.to_vec(),
    };
    *file = bytes;
    tidemark_histcheck::inspect(&all, &mut |_| {});
}

pub fn data_dir_seeds() -> Vec<Vec<u8>> {
    let all = files().0.values().enumerate();
    all.map(|(at, bytes)| {
        let mut seed = vec![u8::try_from(at).expect("few files")];
        seed.extend(without_zeroes(bytes.clone()));
        seed
    })
    .collect()
}

fn audit_options(disk: &SimDisk, dir: &Path) -> tidemark_audit::Options {
    tidemark_audit::Options {
        disk: Arc::new(disk.clone()),
        dir: dir.to_owned(),
        max_bytes: 1 << 20,
        files: 3,
        interval: Duration::from_secs(60),
        which: Which::default(),
        times: Arc::new(|| (1_700_000_000_000, MonoTime::from_ms(1_000))),
    }
}

/// The file as it was found stays as it is, and what a start writes behind it follows it.
pub fn audit_log(bytes: &[u8]) {
    static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
        let dir = std::env::temp_dir().join(format!("tidemark-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for temporary files");
        dir
    });
    const NAME: &str = "audit-00000001.jsonl";
    let bytes = sealed::audit_log(bytes);
    let file = DIR.join(NAME);
    let verify = |bytes: &[u8]| {
        std::fs::write(&file, bytes).expect("a directory for temporary files");
        tidemark_audit::verify(std::slice::from_ref(&file), &[]).expect("the file is there")
    };
    let before = verify(&bytes);

    let disk = SimDisk::new(1);
    let dir = Path::new(DATA).join("audit");
    put(&disk, &dir.join(NAME), &bytes);
    let Ok(audit) = Audit::start(audit_options(&disk, &dir)) else {
        return;
    };
    audit.record(|| Event::new(Kind::Start));
    audit.stop();
    drop(audit);
    let after = read_all(&disk, &dir.join(NAME)).expect("a disk in memory");
    assert!(after.starts_with(&bytes), "what was there is changed");
    let after = verify(&after);
    assert!(after.lines > before.lines, "{before:?} {after:?}");
    if before.whole && before.lines > 0 {
        assert!(after.whole, "{before:?} {after:?}");
    }
}

pub fn audit_log_seeds() -> Vec<Vec<u8>> {
    let disk = SimDisk::new(1);
    let dir = Path::new(DATA).join("audit");
    let mut seeds = Vec::new();
    for _ in 0..2 {
        let audit = Audit::start(audit_options(&disk, &dir)).expect("a disk in memory");
        audit.record(|| Event::new(Kind::Start));
        audit.record(|| {
            Event::new(Kind::Change)
                .principal("User:a")
                .change("a topic")
        });
        audit.stop();
        drop(audit);
        let file = dir.join("audit-00000001.jsonl");
        seeds.push(read_all(&disk, &file).expect("it was written"));
    }
    let mut torn = seeds[0].clone();
    torn.truncate(torn.len() - 40);
    seeds.push(torn);
    seeds
}
