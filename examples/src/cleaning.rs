//! Did retention and compaction really happen? Seen from outside: files that were there and are gone, and what the
//! broker's log tells of finished runs. Counters of a process that is killed every second would say little.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The segments of all partitions, over a whole run.
#[derive(Default)]
pub struct Segments {
    /// Per directory of a partition the names of its segments, as they were first written.
    seen: BTreeMap<String, BTreeSet<String>>,
    there: BTreeMap<String, BTreeSet<String>>,
    /// Directories in which compaction has written: there a segment that is gone was replaced.
    compacted: BTreeSet<String>,
}

impl Segments {
    /// Looks at `<data>/partitions`. Between a kill and the next start nothing moves there.
    pub fn look(&mut self, data: &Path) {
        self.there.clear();
        for (directory, is_dir) in entries(&data.join("partitions")) {
            if !is_dir {
                continue;
            }
            let mut segments = BTreeSet::new();
            for (name, is_dir) in entries(&data.join("partitions").join(&directory)) {
                if is_dir && name.starts_with("compacted-") {
                    self.compacted.insert(directory.clone());
                } else if name.ends_with(".log") {
                    segments.insert(name);
                }
            }
            let seen = self.seen.entry(directory.clone()).or_default();
            seen.extend(segments.iter().cloned());
            self.there.insert(directory, segments);
        }
    }

    /// Segments that were there and are gone, where compaction had no part in it.
    pub fn retired(&self) -> usize {
        let none = BTreeSet::new();
        let here = |directory| self.there.get(directory).unwrap_or(&none);
        (self.seen.iter())
            .filter(|(directory, _)| !self.compacted.contains(*directory))
            .map(|(directory, seen)| seen.difference(here(directory)).count())
            .sum()
    }
}

fn entries(dir: &Path) -> Vec<(String, bool)> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new(); // nothing was written behind yet
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let is_dir = entry.file_type().ok()?.is_dir();
            Some((entry.file_name().into_string().ok()?, is_dir))
        })
        .collect()
}

/// Runs of compaction over the topic that came to their end, by the broker's log.
pub fn compactions(log: &Path, topic: &str) -> usize {
    let text = fs::read(log).unwrap_or_default();
    let run = format!("compaction of {topic:?} partition ");
    String::from_utf8_lossy(&text)
        .lines()
        .filter(|line| line.contains(&run) && line.contains("up to offset"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::{Segments, compactions};
    use std::fs;

    #[test]
    fn segments_that_go_are_counted_where_retention_works() {
        let data = std::env::temp_dir().join(format!("tidemark-cleaning-{}", std::process::id()));
        let (kept, compacted) = (data.join("partitions/a-0"), data.join("partitions/b-0"));
        for dir in [&kept, &compacted] {
            fs::create_dir_all(dir).unwrap();
            for name in ["00.log", "00.tickindex", "10.log"] {
                fs::write(dir.join(name), "").unwrap();
            }
        }
        let mut segments = Segments::default();
        segments.look(&data);
        assert_eq!(segments.retired(), 0);
        fs::create_dir(compacted.join("compacted-1")).unwrap();
        fs::remove_file(kept.join("00.log")).unwrap();
        fs::remove_file(compacted.join("00.log")).unwrap();
        segments.look(&data);
        segments.look(&data);
        assert_eq!(segments.retired(), 1);
        fs::remove_dir_all(&data).unwrap();
    }

    #[test]
    fn finished_runs_over_a_topic_are_counted() {
        let log = std::env::temp_dir().join(format!("tidemark-log-{}", std::process::id()));
        let lines = [
            "compaction of \"a\" partition 0, 50 % new: ..., up to offset 7",
            "compaction of \"a\" partition 1, 50 % new: ..., given up, to be begun again",
            "compaction of \"ab\" partition 0, 50 % new: ..., up to offset 9",
        ];
        fs::write(&log, lines.join("\n")).unwrap();
        assert_eq!(compactions(&log, "a"), 1);
        fs::remove_file(&log).unwrap();
    }
}
