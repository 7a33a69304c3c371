//! Did retention and compaction really happen? Seen from outside: files that were there and are gone, and what the
//! broker's log tells of finished runs. Counters of a process that is killed every second would say little.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use tidemark_histcheck::{DirFiles, inspect};

/// The segments of a topic that retention works on, over a whole run.
pub struct Segments {
    topic: String,
    /// The topic's id, with which the directories of its partitions begin.
    id: Option<String>,
    /// Per directory of a partition the names of its segments, as they were first written.
    seen: BTreeMap<String, BTreeSet<String>>,
    there: BTreeMap<String, BTreeSet<String>>,
}

impl Segments {
    pub fn of(topic: &str) -> Segments {
        Segments {
            topic: topic.to_owned(),
            id: None,
            seen: BTreeMap::new(),
            there: BTreeMap::new(),
        }
    }

    /// Looks at `<data>/partitions`. Between a kill and the next start nothing moves there.
    pub fn look(&mut self, data: &Path) {
        if self.id.is_none() {
            let found = inspect(&DirFiles::new(data), &mut |_| {}).data.metadata;
            self.id = found.topics.get(&self.topic).map(|t| t.id.to_string());
        }
        let Some(id) = &self.id else {
            return; // what has no id has no segments either
        };
        self.there.clear();
        for (directory, is_dir) in entries(&data.join("partitions")) {
            let ours = directory.strip_prefix(id.as_str());
            if !is_dir || !ours.is_some_and(|partition| partition.starts_with('-')) {
                continue;
            }
            let segments: BTreeSet<String> = entries(&data.join("partitions").join(&directory))
                .into_iter()
                .filter(|(name, is_dir)| !is_dir && name.ends_with(".log"))
                .map(|(name, _)| name)
                .collect();
            let seen = self.seen.entry(directory.clone()).or_default();
            seen.extend(segments.iter().cloned());
            self.there.insert(directory, segments);
        }
    }

    /// Segments that were there and are gone.
    pub fn retired(&self) -> usize {
        let none = BTreeSet::new();
        let here = |directory| self.there.get(directory).unwrap_or(&none);
        (self.seen.iter())
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
    fn segments_of_the_topic_that_go_are_counted() {
        let data = std::env::temp_dir().join(format!("tidemark-cleaning-{}", std::process::id()));
        let (ours, other) = (data.join("partitions/a-0"), data.join("partitions/ab-0"));
        for dir in [&ours, &other] {
            fs::create_dir_all(dir).unwrap();
            for name in ["00.log", "00.tickindex", "10.log"] {
                fs::write(dir.join(name), "").unwrap();
            }
        }
        let mut segments = Segments::of("topic");
        segments.id = Some("a".to_owned());
        segments.look(&data);
        assert_eq!(segments.retired(), 0);
        fs::remove_file(ours.join("00.log")).unwrap();
        fs::remove_file(other.join("00.log")).unwrap();
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
