//! Which APIs and versions did tests drive, and which are advertised and never driven?
//!
//! Brokers of tests append what they were asked for to a file of their process in the directory
//! that [`DIR_VARIABLE`] names, one `api_key api_version requests` a line. The binary
//! `api-coverage` reads all files and prints what is missing.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use parking_lot::Mutex;
use tidemark_wire::ApiTable;

/// The environment variable that names the directory; without it nothing is noted.
pub const DIR_VARIABLE: &str = "TIDEMARK_TEST_API_COVERAGE_DIR";

static FILE: Mutex<()> = Mutex::new(());

/// Notes what a broker was asked for: (key, version, requests) each.
pub fn note(counts: &[(i16, i16, u64)]) -> io::Result<()> {
    match std::env::var_os(DIR_VARIABLE) {
        Some(dir) => append(Path::new(&dir), counts),
        None => Ok(()),
    }
}

fn append(dir: &Path, counts: &[(i16, i16, u64)]) -> io::Result<()> {
    let _one_writer = FILE.lock();
    fs::create_dir_all(dir)?;
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join(format!("{}.counts", std::process::id())))?;
    let lines: String = counts
        .iter()
        .map(|(key, version, requests)| format!("{key} {version} {requests}\n"))
        .collect();
    file.write_all(lines.as_bytes())
}

/// Requests by (key, version) over all files in `dir`.
pub fn driven(dir: &Path) -> io::Result<BTreeMap<(i16, i16), u64>> {
    let mut driven = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|e| e != "counts") {
            continue;
        }
        for line in fs::read_to_string(&path)?.lines() {
            let fields: Vec<i64> = line
                .split_whitespace()
                .filter_map(|f| f.parse().ok())
                .collect();
            let parsed = match fields[..] {
                [key, version, requests] => i16::try_from(key)
                    .ok()
                    .zip(i16::try_from(version).ok())
                    .zip(u64::try_from(requests).ok()),
                _ => None,
            };
            let Some((api, requests)) = parsed else {
                let what = format!("{}: not a line of counts: {line}", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            };
            *driven.entry(api).or_insert(0) += requests;
        }
    }
    Ok(driven)
}

/// Every advertised API and version that is not in `driven`, as (name, key, version).
///
/// Produce v0-v2 do not count: they are advertised so that librdkafka compresses (KAFKA-18659), and
/// refused, which `crates/wire` tests.
pub fn missing(driven: &BTreeMap<(i16, i16), u64>) -> Vec<(&'static str, i16, i16)> {
    ApiTable::served_apis()
        .flat_map(|(api, served)| {
            let versions = served.min_advertised.max(served.versions.min)..=served.versions.max;
            versions.map(move |version| (api.name, api.key.code(), version))
        })
        .filter(|(_, key, version)| !driven.contains_key(&(*key, *version)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_driven_is_not_missing_and_all_else_is() {
        let dir = std::env::temp_dir().join(format!("tidemark-coverage-{}", std::process::id()));
        append(&dir, &[(0, 3, 7), (18, 4, 1)]).unwrap();
        append(&dir, &[(0, 3, 1)]).unwrap();
        let driven = driven(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(driven, BTreeMap::from([((0, 3), 8), ((18, 4), 1)]));
        let missing = missing(&driven);
        assert!(!missing.contains(&("Produce", 0, 3)));
        assert!(!missing.contains(&("Produce", 0, 0)), "refused, not driven");
        assert!(missing.contains(&("Produce", 0, 4)));
        assert!(missing.contains(&("EndTxn", 26, 0)));
    }
}
