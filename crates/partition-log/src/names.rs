//! Names of directories and files below `<data>/partitions`.

use std::path::{Path, PathBuf};

use tidemark_types::{TopicId, TopicPartitionId};

/// Directory of all partitions, below the data directory.
pub(crate) const PARTITIONS: &str = "partitions";
/// Names the cluster that the directory of partitions belongs to.
pub(crate) const MARK: &str = "cluster-id";

/// What a file of a segment holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum FileKind {
    /// Batches, one after the other (Kafka's format).
    Log,
    /// One entry per batch, ours; primary data.
    TickIndex,
    /// Kafka's offset index; derived.
    OffsetIndex,
    /// Kafka's time index; derived.
    TimeIndex,
    /// Kafka's index of aborted transactions; derived.
    TxnIndex,
}

impl FileKind {
    pub(crate) const ALL: [FileKind; 5] = [
        FileKind::Log,
        FileKind::TickIndex,
        FileKind::OffsetIndex,
        FileKind::TimeIndex,
        FileKind::TxnIndex,
    ];
    /// Those that are built when a segment is sealed.
    pub(crate) const DERIVED: [FileKind; 3] = [
        FileKind::OffsetIndex,
        FileKind::TimeIndex,
        FileKind::TxnIndex,
    ];

    fn extension(self) -> &'static str {
        match self {
            FileKind::Log => "log",
            FileKind::TickIndex => "tickindex",
            FileKind::OffsetIndex => "index",
            FileKind::TimeIndex => "timeindex",
            FileKind::TxnIndex => "txnindex",
        }
    }
}

/// `<topic id>-<partition>`: the id, not the name, so that a topic that was deleted and created
/// again never meets the files of the first.
pub(crate) fn partition_dir_name(partition: TopicPartitionId) -> String {
    partition.to_string()
}

/// The partition that a directory name stands for; `None` when the name is not one of ours.
pub(crate) fn parse_partition_dir(name: &str) -> Option<TopicPartitionId> {
    let (topic, partition) = name.split_at_checked(36)?;
    let partition: i32 = partition.strip_prefix('-')?.parse().ok()?;
    let digits: Vec<u8> = topic.bytes().filter(|b| *b != b'-').collect();
    let mut id = [0u8; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    let parsed = TopicPartitionId::new(TopicId(id), partition);
    // Only the one spelling that we write ourselves is ours.
    (partition >= 0 && partition_dir_name(parsed) == name).then_some(parsed)
}

/// `00000000000000000042.log`, as Kafka names it.
pub(crate) fn segment_file_name(base_offset: i64, kind: FileKind) -> String {
    format!("{base_offset:020}.{}", kind.extension())
}

/// Files that compaction has written are in a directory of their own, below the partition's, so
/// that they and those they take the place of are there at the same time under the names that
/// Kafka's tools expect. Generation 0 is what write-behind has written, in the partition's own
/// directory; each run of compaction has the next one.
pub(crate) fn generation_dir(partition_dir: &Path, generation: u32) -> PathBuf {
    match generation {
        0 => partition_dir.to_owned(),
        _ => partition_dir.join(generation_dir_name(generation)),
    }
}

pub(crate) fn generation_dir_name(generation: u32) -> String {
    format!("compacted-{generation:010}")
}

/// The generation that a directory name stands for; `None` when the name is not one of ours.
pub(crate) fn parse_generation_dir(name: &str) -> Option<u32> {
    let generation = name.strip_prefix("compacted-")?.parse().ok()?;
    (generation > 0 && generation_dir_name(generation) == name).then_some(generation)
}

pub(crate) fn segment_path(dir: &Path, base_offset: i64, kind: FileKind) -> PathBuf {
    dir.join(segment_file_name(base_offset, kind))
}

/// The base offset and kind that a file name stands for; `None` when the name is not one of ours.
pub(crate) fn parse_segment_file(name: &str) -> Option<(i64, FileKind)> {
    let (digits, extension) = name.split_once('.')?;
    if digits.len() != 20 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let base_offset = digits.parse().ok()?;
    let kind = FileKind::ALL
        .into_iter()
        .find(|k| k.extension() == extension)?;
    Some((base_offset, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_foreign_names_do_not() {
        let partition = TopicPartitionId::new(TopicId([0xab; 16]), 17);
        let name = partition_dir_name(partition);
        assert_eq!(name, "abababab-abab-abab-abab-abababababab-17");
        assert_eq!(parse_partition_dir(&name), Some(partition));
        for foreign in [
            "",
            "orders-0",
            "ABABABAB-abab-abab-abab-abababababab-17",
            "abababab-abab-abab-abab-abababababab-+7",
            "abababab-abab-abab-abab-abababababab--1",
            "abababab-abab-abab-abab-abababababab",
            "ééééééééééééééééééé-1",
        ] {
            assert_eq!(parse_partition_dir(foreign), None, "{foreign}");
        }
        for kind in FileKind::ALL {
            let name = segment_file_name(42, kind);
            assert_eq!(parse_segment_file(&name), Some((42, kind)));
        }
        assert_eq!(parse_generation_dir("compacted-0000000042"), Some(42));
        for foreign in [
            "compacted-0000000000",
            "compacted-42",
            "0000000042",
            "compacted-",
        ] {
            assert_eq!(parse_generation_dir(foreign), None, "{foreign}");
        }
        for foreign in [
            "42.log",
            "00000000000000000042.snapshot",
            "x",
            "+0000000000000000042.log",
        ] {
            assert_eq!(parse_segment_file(foreign), None, "{foreign}");
        }
    }
}
