//! The fuzzer: libFuzzer over the target that TIDEMARK_TEST_FUZZ_TARGET names. With files as arguments it
//! runs the target over them once.
//!
//! With TIDEMARK_TEST_FUZZ_SEEDS=DIR it writes what every target begins with, DIR/<target>/seed-<n>, and
//! with TIDEMARK_TEST_FUZZ_LIST the names of the targets and what they are about.
#![no_main]

use std::alloc::System;
use std::path::Path;
use std::sync::LazyLock;

use cap::Cap;
use libfuzzer_sys::fuzz_target;
use tidemark_fuzz::{TARGETS, Target, named};

/// What one input may make a target hold at a time. An input has 64 KiB at most, and the readers' own
/// bounds are below this; a count that is believed before the bytes are there is far above it.
const HELD_BYTES_MAX: usize = 64 << 20;

/// Refuses what is above; the process then ends, which is a crash. Counts what is asked for: memory that is
/// reserved and never touched, which the system would not count, is what a believed count makes.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("TIDEMARK_TEST_FUZZ_TARGET").unwrap_or_default();
    named(&name).unwrap_or_else(|| {
        eprintln!("TIDEMARK_TEST_FUZZ_TARGET={name} is no target; see scripts/fuzz --list");
        std::process::exit(2);
    })
});

fn prepare() {
    if std::env::var_os("TIDEMARK_TEST_FUZZ_LIST").is_some() {
        for target in TARGETS {
            println!("{:<20} {}", target.name, target.what);
        }
        std::process::exit(0);
    }
    if let Some(dir) = std::env::var_os("TIDEMARK_TEST_FUZZ_SEEDS") {
        if let Err(e) = write_seeds(Path::new(&dir)) {
            eprintln!("{}: {e}", Path::new(&dir).display());
            std::process::exit(1);
        }
        std::process::exit(0);
    }
    LazyLock::force(&TARGET);
}

fn write_seeds(dir: &Path) -> std::io::Result<()> {
    let (mut count, mut bytes) = (0, 0);
    for target in TARGETS {
        let dir = dir.join(target.name);
        std::fs::create_dir_all(&dir)?;
        for (n, seed) in (target.seeds)().into_iter().enumerate() {
            count += 1;
            bytes += seed.len();
            std::fs::write(dir.join(format!("seed-{n:04}")), seed)?;
        }
    }
    println!(
        "seeds: targets={} files={count} bytes={bytes}",
        TARGETS.len()
    );
    Ok(())
}

fuzz_target!(
    init: prepare(),
    |bytes: &[u8]| {
        let most = MEMORY.allocated().saturating_add(HELD_BYTES_MAX);
        MEMORY.set_limit(most).expect("more than is allocated");
        (TARGET.run)(bytes);
    }
);
