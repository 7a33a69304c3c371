//! The served state against what an independent reader makes of the bytes that the cut has left.

use tidemark_histcheck::{MemoryFiles, OffsetKey, batch_records, read};
use tidemark_testkit::{Isolation, RawClient, requests};

use super::janitor::{COMPACTED, EXPIRING, SHRINKING};
use super::ledger::{PARTITIONS, PLAIN_GROUP, TOPIC};

/// Where the two differ. The broker was started on exactly these bytes, and nobody has written since.
pub async fn differences(files: &MemoryFiles, client: &mut RawClient) -> Vec<String> {
    let data = match read(files) {
        Ok(data) => data,
        Err(faults) => return vec![format!("the reader refuses what was started: {faults:#?}")],
    };
    let mut wrong = Vec::new();
    let partitions =
        (0..PARTITIONS)
            .map(|p| (TOPIC, p))
            .chain([(SHRINKING, 0), (COMPACTED, 0), (EXPIRING, 0)]);
    for (topic, partition) in partitions {
        let Some(raw) = data.partition(topic, partition) else {
            wrong.push(format!("{topic}-{partition} is not in the bytes"));
            continue;
        };
        let mut compare = |what: &str, raw: i64, served: i64| {
            if raw != served {
                wrong.push(format!(
                    "{topic}-{partition}: {what} {served}, the bytes say {raw}"
                ));
            }
        };
        for (what, at, isolation, raw) in [
            (
                "log start",
                requests::EARLIEST,
                Isolation::ReadUncommitted,
                raw.log_start_offset,
            ),
            (
                "log end",
                requests::LATEST,
                Isolation::ReadUncommitted,
                raw.log_end_offset,
            ),
            (
                "stable offset",
                requests::LATEST,
                Isolation::ReadCommitted,
                raw.last_stable_offset,
            ),
        ] {
            let served = client.list_offset(topic, partition, at, isolation).await;
            compare(what, raw, served.unwrap_or(-1));
        }
        let mut committed = Vec::new();
        for batch in raw.committed() {
            match batch_records(files, batch) {
                Ok(records) => committed.extend(
                    records
                        .into_iter()
                        .map(|r| (r.offset, r.value.unwrap_or_default())),
                ),
                Err(e) => wrong.push(format!("{topic}-{partition}: {e}")),
            }
        }
        committed.retain(|(offset, _)| *offset >= raw.log_start_offset);
        let served: Vec<_> = client
            .read_all(topic, partition, Isolation::ReadCommitted)
            .await
            .into_iter()
            .map(|record| (record.offset, record.value.to_vec()))
            .filter(|(offset, _)| *offset >= raw.log_start_offset)
            .collect();
        if committed != served {
            wrong.push(format!(
                "{topic}-{partition}: {} committed records, the bytes hold {}",
                served.len(),
                committed.len()
            ));
        }
    }
    for group in ["g-a", "g-b", PLAIN_GROUP] {
        let key = OffsetKey {
            group: group.to_owned(),
            topic: TOPIC.to_owned(),
            partition: 0,
        };
        let raw = data.groups.offsets.get(&key).map_or(-1, |o| o.offset);
        let served = client.committed_offset(group, TOPIC, 0, false).await;
        if served != Ok(raw) {
            wrong.push(format!(
                "group {group}: offset {served:?}, the bytes say {raw}"
            ));
        }
    }
    wrong
}
