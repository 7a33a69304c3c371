//! Deliberately broken brokers, for `scripts/prove mutants`: each must be caught by what checks right ones. Only with the
//! cargo feature `mutants`; without it [`mutant!`](crate::mutant) is `false` and no name is in the binary.

use std::sync::OnceLock;

/// The variable that chooses one.
const VARIABLE: &str = "TIDEMARK_TEST_MUTANT";

/// All there are. `scripts/prove.d/mutants` takes them from these lines.
const NAMES: [&str; 14] = [
    "no-dedup",
    "lso-plus-one",
    "marker-dropped",
    "marker-flipped",
    "aborted-list-short",
    "epoch-not-bumped",
    "ack-early",
    "offsets-before-commit",
    "offsets-dropped",
    "ongoing-forgotten",
    "windows-forgotten",
    "end-old-epoch",
    "timeout-keeps-epoch",
    "fetch-skips",
];

/// Whether this process is to be broken in the way of that name. Ends the process for a name that is none.
pub fn chosen(name: &str) -> bool {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let chosen = std::env::var(VARIABLE).ok()?;
        if !NAMES.contains(&chosen.as_str()) {
            eprintln!("{VARIABLE}: {chosen:?} is none of {NAMES:?}");
            std::process::exit(2);
        }
        eprintln!("this broker is broken on purpose: {chosen}");
        Some(chosen)
    });
    chosen.as_deref() == Some(name)
}
