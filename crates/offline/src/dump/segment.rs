//! `tidemark dump segment` and `tidemark dump tickindex`.

use std::io::{self, Write};
use std::path::Path;

use serde_json::json;
use tidemark_histcheck::{
    Files, PartitionId, SegmentBatch, SegmentFiles, TickEntry, TickHeader, TickKind, TopicId,
    partitions_on_disk, records, segment_batches,
};

use super::journal::insert_records;
use super::{DumpError, Options, Out, Target, object, refuse};
use crate::value::{Names, batch_json, batch_text, record_text, tick_json, tick_text};

const TICK_BYTES: usize = 96;

/// The segments that a path means: one `.log`, those of a partition's directory, or all.
fn segments(
    target: &Target,
    path: &Path,
) -> Result<Vec<(Option<PartitionId>, SegmentFiles)>, DumpError> {
    if let Some(files) = SegmentFiles::of_log(&target.inside) {
        let mut dirs = target.inside.rsplit('/').skip(1);
        return Ok(vec![(dirs.find_map(PartitionId::from_dir_name), files)]);
    }
    if !target.is_dir {
        return refuse(
            path,
            "it is no .log file, no directory of a partition and no data directory",
        );
    }
    let wanted = target.inside.strip_prefix("partitions/");
    let found = match partitions_on_disk(&target.files) {
        Ok(found) => found,
        Err(e) => return refuse(path, &e.to_string()),
    };
    let found = found.into_iter();
    Ok(found
        .filter(|(id, _)| wanted.is_none_or(|dir| dir == id.to_string()))
        .flat_map(|(id, bases)| {
            let files =
                move |(base, generation)| (Some(id), SegmentFiles::new(id, base, generation));
            bases.into_iter().map(files)
        })
        .collect())
}

/// Prints the batches of segments, with what their tick indexes say.
pub fn segment(path: &Path, options: &Options, to: &mut dyn Write) -> Result<(), DumpError> {
    let target = Target::find(path)?;
    let names = target.names();
    let mut out = Out {
        to,
        json: options.json,
    };
    for (id, files) in segments(&target, path)? {
        let log = files.log();
        let heading = match id {
            Some(id) => format!("{log} ({})", names.partition(id)),
            None => log.clone(),
        };
        if !options.json {
            writeln!(out.to, "{heading}")?;
        }
        let mut done = Ok(());
        let mut each = |found: SegmentBatch<'_>| {
            let header = &found.parsed.header;
            if done.is_ok() && options.wants(header.base_offset, header.last_offset()) {
                done = batch(&found, &log, id, &names, options, &mut out);
            }
        };
        let (_, findings) = segment_batches(&target.files, &files, id, None, None, &mut each);
        done?;
        out.findings(&findings)?;
    }
    Ok(())
}

fn batch(
    found: &SegmentBatch<'_>,
    log: &str,
    id: Option<PartitionId>,
    names: &Names,
    options: &Options,
    out: &mut Out<'_>,
) -> io::Result<()> {
    let header = &found.parsed.header;
    let topic = id.map_or(TopicId::default(), |id| id.topic);
    let with_records = options.records && !header.is_control();
    out.line(
        || {
            let mut line = format!(
                "  {} {}",
                found.position,
                batch_text(header, found.parsed.marker)
            );
            match &found.entry {
                Some(entry) => line.push_str(&format!(
                    " tick {} record {} stable {}{}",
                    tick_text(entry.tick),
                    entry.journal_index,
                    entry.last_stable_offset,
                    began_at(entry)
                )),
                None => line.push_str(" (no tick)"),
            }
            if with_records {
                for record in records(found.bytes).unwrap_or_default() {
                    line.push_str(&format!("\n      {}", record_text(topic, &record)));
                }
            }
            line
        },
        || {
            let mut fields = object(&[
                ("kind", "batch".into()),
                ("file", log.into()),
                ("position", found.position.into()),
            ]);
            if let Some(id) = id {
                names.partition_json(id, &mut fields);
            }
            batch_json(header, found.parsed.marker, &mut fields);
            if let Some(entry) = &found.entry {
                tick_json(entry.tick, &mut fields);
                fields.extend(object(&[
                    ("journal_index", entry.journal_index.into()),
                    ("last_stable_offset", entry.last_stable_offset.into()),
                    ("txn_first_offset", entry.txn_first_offset.into()),
                ]));
            }
            if with_records {
                insert_records(topic, found.bytes, &mut fields);
            }
            fields
        },
    )
}

fn began_at(entry: &TickEntry) -> String {
    match entry.txn_first_offset {
        -1 => String::new(),
        first => format!(" transaction began at {first}"),
    }
}

/// Prints the entries of a tick index as they stand.
pub fn tick_index(path: &Path, options: &Options, to: &mut dyn Write) -> Result<(), DumpError> {
    let target = Target::find(path)?;
    if !target.inside.ends_with(".tickindex") {
        return refuse(path, "it is no .tickindex file");
    }
    let bytes = match target.files.whole(&target.inside) {
        Ok(bytes) => bytes.unwrap_or_default(),
        Err(e) => return refuse(path, &e.to_string()),
    };
    let names = target.names();
    let mut out = Out {
        to,
        json: options.json,
    };
    match TickHeader::parse(&bytes) {
        Err(bad) => return refuse(path, &bad.what),
        Ok(header) => out.line(
            || {
                format!(
                    "{} of segment {}, directory {}",
                    names.partition(header.partition),
                    header.base_offset,
                    hex(&header.directory_id)
                )
            },
            || {
                let mut fields = object(&[
                    ("kind", "header".into()),
                    ("base_offset", header.base_offset.into()),
                    ("directory_id", hex(&header.directory_id).into()),
                ]);
                names.partition_json(header.partition, &mut fields);
                fields
            },
        )?,
    }
    for (n, entry) in bytes[TICK_BYTES..].chunks(TICK_BYTES).enumerate() {
        let position = (TICK_BYTES * (n + 1)) as u64;
        let entry = match TickEntry::parse(entry, position) {
            Ok(entry) => entry,
            Err(bad) => {
                let what = bad.what.clone();
                out.line(
                    || format!("  {position} {what}"),
                    || {
                        object(&[
                            ("kind", "finding".into()),
                            ("position", position.into()),
                            ("what", bad.what.clone().into()),
                        ])
                    },
                )?;
                continue;
            }
        };
        if options.wants(entry.base_offset, entry.last_offset()) {
            tick_entry(&entry, position, &mut out)?;
        }
    }
    Ok(())
}

fn tick_entry(entry: &TickEntry, position: u64, out: &mut Out<'_>) -> io::Result<()> {
    let kind = match entry.kind {
        TickKind::Data => "data",
        TickKind::Abort => "abort",
        TickKind::Commit => "commit",
    };
    out.line(
        || {
            format!(
                "  {position} offsets {}..={} {kind} tick {} record {} at {} {} bytes stable {}{}",
                entry.base_offset,
                entry.last_offset(),
                tick_text(entry.tick),
                entry.journal_index,
                entry.position,
                entry.size_bytes,
                entry.last_stable_offset,
                began_at(entry)
            )
        },
        || {
            let mut fields = object(&[
                ("kind", "entry".into()),
                ("position", position.into()),
                ("batch", kind.into()),
                ("base_offset", entry.base_offset.into()),
                ("last_offset", entry.last_offset().into()),
            ]);
            tick_json(entry.tick, &mut fields);
            fields.extend(object(&[
                ("journal_index", entry.journal_index.into()),
                ("log_position", entry.position.into()),
                ("bytes", entry.size_bytes.into()),
                ("base_timestamp", entry.base_timestamp.into()),
                ("max_timestamp", entry.max_timestamp.into()),
                ("running_max_timestamp", entry.running_max_timestamp.into()),
                ("producer_id", entry.producer_id.into()),
                ("producer_epoch", entry.producer_epoch.into()),
                ("attributes", json!(entry.attributes)),
                ("last_stable_offset", entry.last_stable_offset.into()),
                ("txn_first_offset", entry.txn_first_offset.into()),
            ]));
            fields
        },
    )
}

fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}
