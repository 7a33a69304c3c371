//! `tidemark dump checkpoint`.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};
use tidemark_histcheck::{
    Block, Checkpoint, Files, Record, SEGMENTS_BLOCK, SegmentsBlock, StateBlock, checkpoints,
};

use super::{DumpError, Options, Out, Target, object, refuse};
use crate::value::{Names, record_json, record_text, tick_json, tick_text};

/// Prints one checkpoint, or those of a data directory, the newest first.
pub fn checkpoint(path: &Path, options: &Options, to: &mut dyn Write) -> Result<(), DumpError> {
    let target = Target::find(path)?;
    let names = target.names();
    let mut out = Out {
        to,
        json: options.json,
    };
    let (found, findings) = match target.is_dir {
        true => checkpoints(&target.files),
        false => {
            let bytes = match target.files.whole(&target.inside) {
                Ok(bytes) => bytes.unwrap_or_default(),
                Err(e) => return refuse(path, &e.to_string()),
            };
            match Checkpoint::parse(&target.inside, &bytes) {
                Ok(checkpoint) => (vec![checkpoint], Vec::new()),
                Err(bad) => {
                    return refuse(path, &format!("position {}: {}", bad.position, bad.what));
                }
            }
        }
    };
    for checkpoint in &found {
        header(checkpoint, &mut out)?;
        for block in &checkpoint.blocks {
            self::block(block, &names, options, &mut out)?;
        }
    }
    out.findings(&findings)?;
    Ok(())
}

fn header(checkpoint: &Checkpoint, out: &mut Out<'_>) -> io::Result<()> {
    out.line(
        || {
            format!(
                "{}: generation {}, replay from record {}, highest tick {}, {} blocks",
                checkpoint.file,
                checkpoint.generation,
                checkpoint.replay_from,
                tick_text(checkpoint.highest_tick),
                checkpoint.blocks.len()
            )
        },
        || {
            let mut fields = object(&[
                ("kind", "checkpoint".into()),
                ("file", checkpoint.file.clone().into()),
                ("generation", checkpoint.generation.into()),
                ("replay_from", checkpoint.replay_from.into()),
                ("blocks", checkpoint.blocks.len().into()),
            ]);
            tick_json(checkpoint.highest_tick, &mut fields);
            fields
        },
    )
}

fn block(block: &Block, names: &Names, options: &Options, out: &mut Out<'_>) -> io::Result<()> {
    let is_segments = block.kind == SEGMENTS_BLOCK;
    let word = if is_segments { "segments" } else { "state" };
    let parsed = match is_segments {
        true => SegmentsBlock::parse(block).map(|parsed| segments(&parsed)),
        false => StateBlock::parse(block).map(|parsed| state(&parsed, block, options)),
    };
    let (text, fields) = match parsed {
        Ok(parsed) => parsed,
        Err(bad) => (bad.what.clone(), json!({ "bad": bad.what })),
    };
    out.line(
        || {
            format!(
                "  {} {} of {} as of record {}: {text}",
                block.position,
                word,
                names.partition(block.partition),
                block.stamp
            )
        },
        || {
            let mut all = object(&[
                ("kind", word.into()),
                ("position", block.position.into()),
                ("stamp", block.stamp.into()),
                ("format_version", block.format_version.into()),
            ]);
            names.partition_json(block.partition, &mut all);
            if let Value::Object(fields) = fields {
                all.extend(fields);
            }
            all
        },
    )
}

fn segments(block: &SegmentsBlock) -> (String, Value) {
    let mut text = format!(
        "offsets {}..{}, synced up to {}, {} aborted transactions",
        block.log_start_offset,
        block.end_offset,
        block.synced_end_offset,
        block.aborted.len()
    );
    if block.first_needed_index > 0 {
        text.push_str(&format!(
            ", bytes needed from record {}",
            block.first_needed_index
        ));
    }
    for s in &block.segments {
        text.push_str(&format!(
            "\n      {:020}.log up to {}: {} bytes, {} batches{}",
            s.base_offset,
            s.next_offset,
            s.log_bytes,
            s.entries,
            if s.indexed { ", sealed" } else { "" }
        ));
    }
    let listed: Vec<Value> = (block.segments.iter())
        .map(|s| {
            json!({
                "base_offset": s.base_offset, "next_offset": s.next_offset, "log_bytes": s.log_bytes,
                "batches": s.entries, "max_timestamp": s.max_timestamp, "last_tick": s.last_tick,
                "log_crc": format!("{:08x}", s.log_crc), "sealed": s.indexed,
            })
        })
        .collect();
    let aborted: Vec<Value> = (block.aborted.iter())
        .map(|txn| {
            json!({
                "producer_id": txn.producer_id, "first_offset": txn.first_offset,
                "last_offset": txn.last_offset, "last_stable_offset": txn.last_stable_offset,
            })
        })
        .collect();
    let json = json!({
        "log_start_offset": block.log_start_offset,
        "synced_end_offset": block.synced_end_offset,
        "end_offset": block.end_offset,
        "first_needed_index": block.first_needed_index,
        "leader_epochs": block.epochs,
        "tail_batches": block.tail.len(),
        "segments": listed,
        "aborted": aborted,
    });
    (text, json)
}

fn state(state: &StateBlock, block: &Block, options: &Options) -> (String, Value) {
    let open = state
        .producers
        .values()
        .filter(|p| p.open_from.is_some())
        .count();
    let mut text = format!(
        "offsets {}..{}, stable {}, leader epochs {:?}, {} producers, {open} open transactions",
        state.log_start_offset,
        state.log_end_offset,
        state.last_stable_offset(),
        state.epochs,
        state.producers.len()
    );
    let mut producers = Vec::new();
    for (id, p) in &state.producers {
        if options.records {
            text.push_str(&format!("\n      producer {id}: {p:?}"));
        }
        let window: Vec<Value> = (p.window.iter())
            .map(|b| {
                json!({
                    "base_sequence": b.base_sequence, "last_offset_delta": b.last_offset_delta,
                    "base_offset": b.base_offset, "max_timestamp": b.max_timestamp,
                })
            })
            .collect();
        producers.push(json!({
            "producer_id": id, "epoch": p.epoch, "coordinator_epoch": p.coordinator_epoch,
            "open_from": p.open_from, "last_wall_ms": p.last_wall_ms, "window": window,
        }));
    }
    let records: Vec<Record> = (state.records.iter())
        .map(|r| Record {
            offset: r.offset,
            timestamp: -1,
            key: Some(r.key.clone()),
            value: Some(r.value.clone()),
            headers: Vec::new(),
        })
        .collect();
    if !records.is_empty() {
        text.push_str(&format!(", {} records", records.len()));
    }
    let topic = block.partition.topic;
    if options.records {
        for record in &records {
            text.push_str(&format!("\n      {}", record_text(topic, record)));
        }
    }
    let json = json!({
        "log_start_offset": state.log_start_offset,
        "log_end_offset": state.log_end_offset,
        "last_stable_offset": state.last_stable_offset(),
        "leader_epochs": state.epochs,
        "producers": producers,
        "records": records.iter().map(|r| record_json(topic, r)).collect::<Vec<_>>(),
    });
    (text, json)
}
