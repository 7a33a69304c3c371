//! What the journal costs over the disk: `scripts/bench journal`.
//!
//! Group commit at 4, 64, 256 KiB and 1 MiB per sync, beside a bare loop of write and fdatasync over prewritten files of
//! the same kind, in turns; then latencies while other files are written at 200 MB/s, synced and renamed as write-behind and
//! checkpoints do. The last line: `journal: ratio_min=... p99_ms=... p999_ms=...`.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidemark_disk::{Disk, DiskFile, OpenMode, OsDisk};
use tidemark_journal::{
    After, AppendRequest, Journal, JournalEvent, JournalOptions, LocalJournal, recover,
};
use tidemark_types::{JournalIndex, Tick};

const SIZES: [usize; 4] = [4 << 10, 64 << 10, 256 << 10, 1 << 20];
const SLOT_BYTES: u64 = 64 << 20;
const SLOTS: u64 = 6;
const PAGE: u64 = 4096;
/// A frame's header: so much less is a record's payload, that its group is of the size wanted.
const FRAME_HEADER_BYTES: usize = 88;
/// Two are being synced, one is filling.
const IN_FLIGHT: u64 = 3;

/// Write-behind lets so much go to the disk at a time.
const TO_DISK_BYTES: u64 = 256 << 10;

struct Options {
    dir: PathBuf,
    /// Bytes per sync.
    sizes: Vec<usize>,
    seconds: f64,
    rounds: usize,
    write_behind_mb_per_s: u64,
    min_ratio: f64,
    max_p99_ms: f64,
    max_p999_ms: f64,
}

fn options() -> Options {
    let mut options = Options {
        dir: PathBuf::from("journal-bench"),
        sizes: SIZES.to_vec(),
        seconds: 2.0,
        rounds: 5,
        write_behind_mb_per_s: 200,
        min_ratio: 0.9,
        max_p99_ms: 4.0,
        max_p999_ms: 15.0,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        let number = || {
            value
                .parse::<f64>()
                .unwrap_or_else(|_| panic!("{name} needs a number"))
        };
        match name.as_str() {
            "--dir" => options.dir = PathBuf::from(value),
            "--size-kib" => options.sizes = vec![number() as usize * 1024],
            "--seconds" => options.seconds = number(),
            "--rounds" => options.rounds = number() as usize,
            "--write-behind-mb" => options.write_behind_mb_per_s = number() as u64,
            "--min-ratio" => options.min_ratio = number(),
            "--max-p99-ms" => options.max_p99_ms = number(),
            "--max-p999-ms" => options.max_p999_ms = number(),
            other => panic!("unknown option {other}"),
        }
    }
    options
}

struct Run {
    mb_per_s: f64,
    syncs_per_s: f64,
    /// Sorted, in ms.
    latencies: Vec<f64>,
}

impl Run {
    fn new(bytes: u64, mut latencies: Vec<f64>, took: Duration) -> Run {
        latencies.sort_by(f64::total_cmp);
        Run {
            mb_per_s: bytes as f64 / 1e6 / took.as_secs_f64(),
            syncs_per_s: latencies.len() as f64 / took.as_secs_f64(),
            latencies,
        }
    }

    fn at(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let at = (self.latencies.len() as f64 * share) as usize;
        self.latencies.get(at.min(last)).copied().unwrap_or(0.0)
    }
}

struct Bench {
    dir: PathBuf,
    index: u64,
    tick: u64,
    epoch: u32,
}

impl Bench {
    fn start(&mut self) -> (LocalJournal, Receiver<JournalEvent>) {
        let options = JournalOptions {
            slot_bytes: SLOT_BYTES,
            budget_bytes: SLOTS * SLOT_BYTES,
            ..JournalOptions::new(self.dir.join("journal"), [7; 16])
        };
        let from = JournalIndex(self.index.max(1));
        let found = recover(Arc::new(OsDisk), options, from, &mut |_| Ok(()));
        let found = found.expect("a journal of this program");
        (self.index, self.tick) = (found.next_index.0, found.highest_tick.0);
        self.epoch = found.epoch;
        let (sender, events) = channel();
        let journal = found.start(Box::new(move |event| drop(sender.send(event))));
        journal.release_below(JournalIndex(self.index));
        (journal, events)
    }

    /// Records of `size` bytes in their frames, each a group of its own, one after the other.
    fn journal(&mut self, size: usize, time: Duration) -> Run {
        let (journal, events) = self.start();
        let payload = Bytes::from(vec![0xa5; size - FRAME_HEADER_BYTES]);
        let began = Instant::now();
        let mut sent_at = std::collections::VecDeque::new();
        let mut latencies = Vec::new();
        let first_index = self.index;
        loop {
            let goes_on = began.elapsed() < time;
            while goes_on && (sent_at.len() as u64) < IN_FLIGHT {
                let after = After {
                    epoch: self.epoch,
                    tick: Tick(self.tick),
                };
                self.tick += 1;
                // A writer has the one before when the next comes, so that each is a group of its own. Not by
                // going round: the writers and the disk's driver may need the core.
                while journal.stats().records < self.index - first_index {
                    std::thread::sleep(Duration::from_micros(50));
                }
                let request = AppendRequest {
                    index: JournalIndex(self.index),
                    tick: Tick(self.tick),
                    wall_ms: 0,
                    pieces: vec![payload.clone()],
                    must_sync: true,
                    unsettled: false,
                };
                sent_at.push_back(Instant::now());
                journal.append(after, request);
                self.index += 1;
            }
            if sent_at.is_empty() {
                break;
            }
            match events.recv().expect("the journal runs") {
                JournalEvent::Confirmed { index, .. } => {
                    while (sent_at.len() as u64) > self.index - 1 - index.0 {
                        let sent: Instant = sent_at.pop_front().expect("as many as in flight");
                        latencies.push(sent.elapsed().as_secs_f64() * 1e3);
                    }
                    journal.release_below(JournalIndex(index.0.saturating_sub(2)));
                }
                JournalEvent::Failed { message } => panic!("{message}"),
                _ => {}
            }
        }
        let took = began.elapsed();
        let stats = journal.stats();
        journal.shutdown();
        let grouped = stats.records as f64 / stats.groups.max(1) as f64;
        assert!(
            grouped < 1.5,
            "{grouped} records per group: the size is not what it says"
        );
        Run::new(latencies.len() as u64 * size as u64, latencies, took)
    }

    /// The same writes and syncs by one loop, over files made as slots are. (Over the slots themselves
    /// there would be no journal left.)
    fn bare(&self, size: usize, time: Duration) -> Run {
        let dir = self.dir.join("bare");
        std::fs::create_dir_all(&dir).expect("a directory");
        let files: Vec<Arc<dyn DiskFile>> = (0..3)
            .map(|n| prewritten(&dir.join(format!("{n}.slot"))))
            .collect();
        let buffer = vec![0x5a; size];
        let began = Instant::now();
        let mut latencies = Vec::new();
        let (mut file, mut pos) = (0, PAGE);
        while began.elapsed() < time {
            if pos + size as u64 > SLOT_BYTES {
                (file, pos) = ((file + 1) % files.len(), PAGE);
            }
            let sent = Instant::now();
            let (head, rest) = buffer.split_at(FRAME_HEADER_BYTES);
            let slices = [IoSlice::new(head), IoSlice::new(rest)];
            files[file]
                .write_vectored_at(&slices, pos)
                .expect("a write");
            files[file].sync_data().expect("a sync");
            latencies.push(sent.elapsed().as_secs_f64() * 1e3);
            pos += size as u64;
        }
        Run::new(
            latencies.len() as u64 * size as u64,
            latencies,
            began.elapsed(),
        )
    }
}

/// A file of a slot's size, full of zeroes and synced.
fn prewritten(path: &Path) -> Arc<dyn DiskFile> {
    let file = OsDisk.open(path, OpenMode::OpenOrCreate).expect("a file");
    if file.len().expect("its length") < SLOT_BYTES {
        // In the pieces that slots are made of: how the system keeps a file in memory matters.
        let zeroes = vec![0; 64 << 10];
        for at in (0..SLOT_BYTES).step_by(zeroes.len()) {
            file.write_at(&zeroes, at).expect("a write");
        }
        file.sync_data().expect("a sync");
    }
    file
}

/// Appends to files as write-behind does (space for 4 MiB first, which is written and sent to the disk in pieces), and every
/// second, as a checkpoint does, syncs them, writes a file of 1 MiB under another name, syncs and renames it.
fn write_behind(dir: &Path, mb_per_s: u64, stop: &AtomicBool, written: &AtomicU64) {
    std::fs::create_dir_all(dir).expect("a directory");
    let piece = vec![0x3c; 4 << 20];
    let began = Instant::now();
    let (mut sealed, mut at) = (0, 0);
    let mut file = OsDisk
        .open(&dir.join("0.log"), OpenMode::OpenOrCreate)
        .expect("a file");
    let mut last_checkpoint = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if at >= 256 << 20 {
            sealed += 1;
            at = 0;
            // Two files are enough: the disk is not to fill up.
            let name = format!("{}.log", sealed % 2);
            file = OsDisk
                .open(&dir.join(name), OpenMode::OpenOrCreate)
                .expect("a file");
            file.set_len(0).expect("a shorter file");
        }
        file.allocate(at, piece.len() as u64).expect("space");
        for to_disk in (at..at + piece.len() as u64).step_by(TO_DISK_BYTES as usize) {
            std::thread::sleep(Duration::from_secs_f64(TO_DISK_BYTES as f64 / 256e6));
            let written = &piece[..TO_DISK_BYTES as usize];
            file.write_at(written, to_disk).expect("a write");
            file.begin_write_back(to_disk, TO_DISK_BYTES);
        }
        at += piece.len() as u64;
        let total = written.fetch_add(piece.len() as u64, Ordering::Relaxed) + piece.len() as u64;
        if last_checkpoint.elapsed() > Duration::from_secs(1) {
            last_checkpoint = Instant::now();
            file.sync_data().expect("a sync");
            tidemark_disk::write_atomic(&OsDisk, dir, "checkpoint", &piece[..1 << 20])
                .expect("a checkpoint");
        }
        let due = Duration::from_secs_f64(total as f64 / (mb_per_s as f64 * 1e6));
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn main() -> std::process::ExitCode {
    let options = options();
    let time = Duration::from_secs_f64(options.seconds);
    let mut bench = Bench {
        dir: options.dir.clone(),
        index: 0,
        tick: 0,
        epoch: 0,
    };
    // All slots are made, and the bare writer's files.
    bench.journal(
        1 << 20,
        Duration::from_secs_f64((options.seconds * 2.0).max(3.0)),
    );
    bench.bare(1 << 20, Duration::from_millis(100));

    println!(
        "   per sync    journal MB/s (syncs/s, p50 p99 ms)    bare MB/s (syncs/s, p50 p99 ms)    ratio"
    );
    let mut ratio_min = f64::MAX;
    for &size in &options.sizes {
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..options.rounds {
            // In turns, and each first every other time.
            let (journal, bare) = match round % 2 {
                0 => {
                    let journal = bench.journal(size, time);
                    (journal, bench.bare(size, time))
                }
                _ => {
                    let bare = bench.bare(size, time);
                    (bench.journal(size, time), bare)
                }
            };
            ratios.push(journal.mb_per_s / bare.mb_per_s);
            ours.push(journal);
            theirs.push(bare);
        }
        let of =
            |runs: &[Run], value: &dyn Fn(&Run) -> f64| median(runs.iter().map(value).collect());
        let told = |runs: &[Run]| {
            format!(
                "{:7.1} ({:6.0}, {:.2} {:.2})",
                of(runs, &|r| r.mb_per_s),
                of(runs, &|r| r.syncs_per_s),
                of(runs, &|r| r.at(0.5)),
                of(runs, &|r| r.at(0.99))
            )
        };
        let ratio = median(ratios.clone());
        ratio_min = ratio_min.min(ratio);
        let spread: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        println!(
            "{:>7} KiB    {}    {}    {ratio:.2} ({})",
            size >> 10,
            told(&ours),
            told(&theirs),
            spread.join(" ")
        );
    }

    println!(
        "with write-behind at {} MB/s and a checkpoint a second:",
        options.write_behind_mb_per_s
    );
    let (mut p99, mut p999) = (0.0f64, 0.0f64);
    let sizes = options
        .sizes
        .iter()
        .filter(|_| options.write_behind_mb_per_s > 0);
    for &size in sizes {
        let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
        let (run, seconds) = std::thread::scope(|scope| {
            let dir = options.dir.join("segments");
            let (stop, written) = (&stop, &written);
            let mb_per_s = options.write_behind_mb_per_s;
            let writer = scope.spawn(move || write_behind(&dir, mb_per_s, stop, written));
            let began = Instant::now();
            let run = bench.journal(size, time.mul_f64(2.0));
            let seconds = began.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            drop(writer.join());
            (run, seconds)
        });
        let behind = written.load(Ordering::Relaxed) as f64 / 1e6 / seconds;
        println!(
            "{:>7} KiB    {:7.1} MB/s, {:.0} syncs/s; p50 {:.2} p99 {:.2} p99.9 {:.2} max {:.2} ms; write-behind {behind:.0} MB/s",
            size >> 10,
            run.mb_per_s,
            run.syncs_per_s,
            run.at(0.5),
            run.at(0.99),
            run.at(0.999),
            run.at(1.0)
        );
        p99 = p99.max(run.at(0.99));
        p999 = p999.max(run.at(0.999));
    }
    println!("journal: ratio_min={ratio_min:.2} p99_ms={p99:.2} p999_ms={p999:.2}");
    let good =
        ratio_min >= options.min_ratio && p99 <= options.max_p99_ms && p999 <= options.max_p999_ms;
    match good {
        true => std::process::ExitCode::SUCCESS,
        false => {
            eprintln!(
                "too slow: the limits are ratio {}, p99 {} ms and p99.9 {} ms",
                options.min_ratio, options.max_p99_ms, options.max_p999_ms
            );
            std::process::ExitCode::FAILURE
        }
    }
}
