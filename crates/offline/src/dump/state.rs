//! `tidemark dump state`: what a start would serve.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use tidemark_histcheck::{PartitionId, inspect};

use super::{DumpError, Options, Out, Target, object, refuse};
use crate::value::Names;

/// Prints topics, partitions, committed offsets and transactional ids of a data directory.
pub fn state(path: &Path, options: &Options, to: &mut dyn Write) -> Result<(), DumpError> {
    let target = Target::find(path)?;
    if !target.is_dir {
        return refuse(path, "it is no directory; name the data directory");
    }
    let inspection = inspect(&target.files, &mut |_| {});
    let data = &inspection.data;
    let names = Names(data.metadata.clone());
    let mut out = Out {
        to,
        json: options.json,
    };
    if let Some(identity) = &data.identity {
        out.line(
            || {
                format!(
                    "cluster {}, node {}, journal epoch {}, next producer id {}",
                    identity.cluster_id,
                    identity.node_id,
                    data.metadata.journal_epoch,
                    data.metadata.next_producer_id
                )
            },
            || {
                object(&[
                    ("kind", "cluster".into()),
                    ("cluster_id", identity.cluster_id.clone().into()),
                    ("node_id", identity.node_id.into()),
                    ("journal_epoch", data.metadata.journal_epoch.into()),
                    ("next_producer_id", data.metadata.next_producer_id.into()),
                    ("generation", data.generation.into()),
                    ("next_journal_index", data.journal.next_index.into()),
                ])
            },
        )?;
    }
    for topic in data.metadata.topics.values() {
        out.line(
            || {
                format!(
                    "topic {:?} id {} {} partitions {:?}",
                    topic.name, topic.id, topic.partitions, topic.config
                )
            },
            || {
                object(&[
                    ("kind", "topic".into()),
                    ("topic", topic.name.clone().into()),
                    ("topic_id", topic.id.to_string().into()),
                    ("partitions", topic.partitions.into()),
                    ("config", json!(topic.config)),
                ])
            },
        )?;
    }
    for (id, p) in &data.partitions {
        // The fifty partitions of a coordinator that hold nothing are no news.
        let internal = *id != PartitionId::METADATA && id.topic.0[..15] == [0; 15];
        if internal && p.batches.is_empty() {
            continue;
        }
        out.line(
            || format!("  {} offsets {}..{} stable {}, {} batches, {} producers, {} aborted transactions", names.partition(*id), p.log_start_offset, p.log_end_offset, p.last_stable_offset, p.batches.len(), p.producers.len(), p.aborted.len()),
            || {
                let mut fields = object(&[("kind", "partition".into())]);
                names.partition_json(*id, &mut fields);
                fields.extend(object(&[
                    ("log_start_offset", p.log_start_offset.into()),
                    ("log_end_offset", p.log_end_offset.into()),
                    ("last_stable_offset", p.last_stable_offset.into()),
                    ("batches", p.batches.len().into()),
                    ("producers", p.producers.len().into()),
                    ("aborted", p.aborted.len().into()),
                    ("last_tick", p.batches.last().map(|b| b.tick).into()),
                ]));
                fields
            },
        )?;
    }
    for (key, offset) in &data.groups.offsets {
        out.line(
            || {
                format!(
                    "group {:?} {}-{} offset {}",
                    key.group, key.topic, key.partition, offset.offset
                )
            },
            || {
                object(&[
                    ("kind", "offset".into()),
                    ("group", key.group.clone().into()),
                    ("topic", key.topic.clone().into()),
                    ("partition", key.partition.into()),
                    ("offset", offset.offset.into()),
                    ("metadata", offset.metadata.clone().into()),
                    ("commit_timestamp_ms", offset.commit_timestamp_ms.into()),
                ])
            },
        )?;
    }
    for (id, state) in &data.transactional_ids {
        out.line(
            || {
                format!(
                    "transactional id {id:?} {} producer {}/{} {:?}",
                    state.state_name(),
                    state.producer_id,
                    state.epoch,
                    state.partitions
                )
            },
            || {
                object(&[
                    ("kind", "transactional_id".into()),
                    ("transactional_id", id.clone().into()),
                    ("state", state.state_name().into()),
                    ("producer_id", state.producer_id.into()),
                    ("epoch", state.epoch.into()),
                    ("timeout_ms", state.timeout_ms.into()),
                    ("partitions", json!(state.partitions)),
                    ("start_ms", state.start_ms.into()),
                    ("last_update_ms", state.last_update_ms.into()),
                ])
            },
        )?;
    }
    out.findings(&inspection.findings)?;
    Ok(())
}
