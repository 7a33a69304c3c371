//! `tidemark dump journal`.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use tidemark_histcheck::{
    Append, BatchHeader, FrameAt, FrameKind, appends, journal_frames, parse_batch, records,
    slot_frames,
};

use super::{DumpError, Options, Out, Target, object};
use crate::value::{
    Names, batch_json, batch_text, record_json, record_text, tick_json, tick_text, time_text,
};

/// Prints the frames of a journal, or of one slot.
pub fn journal(path: &Path, options: &Options, to: &mut dyn Write) -> Result<(), DumpError> {
    let target = Target::find(path)?;
    let names = target.names();
    let mut out = Out {
        to,
        json: options.json,
    };
    let mut done = Ok(());
    let mut each = |at: &FrameAt<'_>| {
        let index = at.frame.index as i64;
        if done.is_ok() && options.wants(index, index) {
            done = frame(at, &names, options, &mut out);
        }
    };
    let findings = if target.inside.ends_with(".slot") {
        slot_frames(&target.files, &target.inside, &mut each).1
    } else {
        let from = options.from.map_or(0, |from| from.max(1) as u64);
        journal_frames(&target.files, from, &mut each).1
    };
    done?;
    out.findings(&findings)?;
    Ok(())
}

fn frame(at: &FrameAt<'_>, names: &Names, options: &Options, out: &mut Out<'_>) -> io::Result<()> {
    let frame = at.frame;
    let appends = match frame.kind {
        FrameKind::Record => appends(at.payload),
        _ => Ok(Vec::new()),
    };
    let (appends, bad) = match appends {
        Ok(appends) => (appends, None),
        Err(bad) => (Vec::new(), Some(bad.what)),
    };
    out.line(
        || {
            let mut line = format!(
                "{}:{} {} {} tick {} wall {} epoch {}",
                at.file,
                at.position,
                frame.kind.word(),
                frame.index,
                tick_text(frame.tick),
                time_text(frame.wall_ms),
                frame.epoch
            );
            if frame.kind == FrameKind::Record {
                line.push_str(&format!(
                    " {} bytes {} appends",
                    frame.payload_bytes,
                    appends.len()
                ));
            } else {
                line.push_str(&format!(" synced up to {}", frame.durable_mark));
            }
            if let Some(bad) = &bad {
                line.push_str(&format!(" ({bad})"));
            }
            for append in &appends {
                line.push_str(&append_text(append, names, options));
            }
            line
        },
        || {
            let mut fields = object(&[
                ("kind", frame.kind.word().into()),
                ("file", at.file.into()),
                ("position", at.position.into()),
                ("index", frame.index.into()),
            ]);
            tick_json(frame.tick, &mut fields);
            fields.extend(object(&[
                ("wall_ms", frame.wall_ms.into()),
                ("epoch", frame.epoch.into()),
                ("durable_mark", frame.durable_mark.into()),
                ("lsn", frame.lsn.into()),
                ("crc", format!("{:08x}", frame.crc).into()),
                ("payload_bytes", frame.payload_bytes.into()),
            ]));
            if frame.kind == FrameKind::Record {
                let appends = appends.iter();
                let appends: Vec<Value> = appends
                    .map(|append| append_json(append, names, options))
                    .collect();
                fields.insert("appends".to_owned(), json!(appends));
                fields.extend(bad.as_ref().map(|bad| ("bad".to_owned(), json!(bad))));
            }
            fields
        },
    )
}

fn append_text(append: &Append<'_>, names: &Names, options: &Options) -> String {
    let mut out = format!("\n    {} ", names.partition(append.partition));
    match parse_batch(append.batch) {
        Ok(batch) => out.push_str(&batch_text(&batch.header, batch.marker)),
        Err(bad) => out.push_str(&bad.what),
    }
    if options.records && is_data(append.batch) {
        match records(append.batch) {
            Ok(found) => {
                for record in found {
                    let record = record_text(append.partition.topic, &record);
                    out.push_str(&format!("\n        {record}"));
                }
            }
            Err(bad) => out.push_str(&format!("\n        {}", bad.what)),
        }
    }
    out
}

fn append_json(append: &Append<'_>, names: &Names, options: &Options) -> Value {
    let mut fields = Map::new();
    names.partition_json(append.partition, &mut fields);
    match parse_batch(append.batch) {
        Ok(batch) => batch_json(&batch.header, batch.marker, &mut fields),
        Err(bad) => drop(fields.insert("bad".to_owned(), json!(bad.what))),
    }
    if options.records && is_data(append.batch) {
        insert_records(append.partition.topic, append.batch, &mut fields);
    }
    Value::Object(fields)
}

/// The records of a batch, or why there are none.
pub(super) fn insert_records(
    topic: tidemark_histcheck::TopicId,
    batch: &[u8],
    fields: &mut Map<String, Value>,
) {
    match records(batch) {
        Ok(found) => {
            let found: Vec<Value> = found.iter().map(|r| record_json(topic, r)).collect();
            fields.insert("data".to_owned(), json!(found));
        }
        Err(bad) => drop(fields.insert("bad".to_owned(), json!(bad.what))),
    }
}

fn is_data(batch: &[u8]) -> bool {
    BatchHeader::parse(batch).is_ok_and(|header| !header.is_control())
}
