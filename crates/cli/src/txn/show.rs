//! The endpoint's JSON for people.

use std::fmt::{Result, Write};

use serde_json::Value;

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Text of a client's, which must not reach the terminal as it is.
fn escaped(value: &Value) -> String {
    text(value).escape_debug().to_string()
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `1.2 s`, `3 min 20 s`, `2 h 5 min`.
fn duration(value: &Value) -> String {
    let Some(ms) = value.as_i64() else {
        return "-".to_owned();
    };
    let sign = if ms < 0 { "-" } else { "" };
    let ms = ms.unsigned_abs();
    let seconds = ms / 1_000;
    let told = match seconds {
        0..60 => format!("{}.{} s", seconds, ms % 1_000 / 100),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    };
    format!("{sign}{told}")
}

/// UTC, as `2026-01-31 09:05:07.123`.
fn time(value: &Value) -> String {
    let Some(ms) = value.as_i64().filter(|ms| *ms >= 0) else {
        return "-".to_owned();
    };
    let days = ms / 86_400_000;
    let in_day = ms % 86_400_000;
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}.{:03}",
        in_day / 3_600_000,
        in_day / 60_000 % 60,
        in_day / 1_000 % 60,
        in_day % 1_000
    )
}

/// The Gregorian date of a day since 1970.
fn date(days: i64) -> (i64, i64, i64) {
    // Years begin in March here, so that the leap day is the last of its year.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Columns as wide as what is in them.
fn table(out: &mut dyn Write, rows: &[Vec<String>]) -> Result {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            write!(line, "{cell:width$}  ")?;
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn sum(partitions: &Value, field: &str) -> i64 {
    array(partitions)
        .iter()
        .filter_map(|p| p[field].as_i64())
        .sum()
}

pub(crate) fn transactions(value: &Value, out: &mut dyn Write) -> Result {
    let found = array(value);
    if found.is_empty() {
        return writeln!(out, "No transaction is open.");
    }
    let mut rows = vec![row(&[
        "TRANSACTIONAL ID",
        "AGE",
        "TIMES OUT IN",
        "PRODUCER",
        "CLIENT",
        "HOST",
        "PARTITIONS",
        "RECORDS",
        "BYTES",
    ])];
    for t in found {
        let partitions = &t["partitions"];
        rows.push(vec![
            text(&t["transactional_id"]),
            duration(&t["age_ms"]),
            duration(&t["times_out_in_ms"]),
            format!("{}:{}", t["producer_id"], t["producer_epoch"]),
            text(&t["client_id"]),
            text(&t["host"]),
            array(partitions).len().to_string(),
            sum(partitions, "records").to_string(),
            sum(partitions, "bytes").to_string(),
        ]);
    }
    table(out, &rows)
}

fn describe(t: &Value, out: &mut dyn Write) -> Result {
    writeln!(
        out,
        "transactional id {}: {}, producer {} epoch {}, {} dialect",
        text(&t["transactional_id"]),
        text(&t["state"]),
        t["producer_id"],
        t["producer_epoch"],
        text(&t["dialect"])
    )?;
    writeln!(
        out,
        "  opened by client {:?} at {} as {}",
        text(&t["client_id"]),
        text(&t["host"]),
        escaped(&t["principal"])
    )?;
    if t["opened_at_ms"].is_null() {
        writeln!(
            out,
            "  no transaction is ongoing; number {} ended: {}",
            t["transaction_number"],
            text(&t["last_end"])
        )?;
        return Ok(());
    }
    writeln!(
        out,
        "  transaction {} began {}, {} ago; its timeout of {} passes in {}",
        t["transaction_number"],
        time(&t["opened_at_ms"]),
        duration(&t["age_ms"]),
        duration(&t["timeout_ms"]),
        duration(&t["times_out_in_ms"])
    )?;
    let mut rows = vec![row(&[
        "  PARTITION",
        "FIRST OFFSET",
        "RECORDS",
        "BYTES",
        "LAST ACTIVITY",
    ])];
    for p in array(&t["partitions"]) {
        rows.push(vec![
            format!("  {}-{}", text(&p["topic"]), p["partition"]),
            text(&p["first_offset"]),
            text(&p["records"]),
            text(&p["bytes"]),
            time(&p["last_activity_ms"]),
        ]);
    }
    table(out, &rows)
}

pub(crate) fn transaction(value: &Value, out: &mut dyn Write) -> Result {
    describe(&value["transaction"], out)?;
    writeln!(out, "timeline (UTC):")?;
    let mut rows = Vec::new();
    for change in array(&value["timeline"]) {
        rows.push(vec![
            format!("  {}", time(&change["at_ms"])),
            format!("{}:{}", change["producer_id"], change["producer_epoch"]),
            text(&change["state"]),
            text(&change["what"]),
            array(&change["partitions"])
                .iter()
                .map(text)
                .collect::<Vec<_>>()
                .join(" "),
        ]);
    }
    table(out, &rows)
}

pub(crate) fn partitions(value: &Value, out: &mut dyn Write) -> Result {
    for p in array(value) {
        let name = format!("{}-{}", text(&p["topic"]), p["partition"]);
        let (high, stable) = (&p["high_watermark"], &p["last_stable_offset"]);
        if p["lag_records"].as_i64() == Some(0) {
            writeln!(out, "{name}: nothing is held back (high watermark {high})")?;
            continue;
        }
        writeln!(
            out,
            "{name}: read_committed stands at {stable} of {high}, {} offsets behind, for {}",
            p["lag_records"],
            duration(&p["lag_ms"])
        )?;
        let holder = &p["holder"];
        if holder.is_null() {
            writeln!(out, "  its holder has just ended")?;
            continue;
        }
        writeln!(
            out,
            "  held by {}, producer {}:{}, client {:?} at {} as {}",
            text(&holder["transactional_id"]),
            holder["producer_id"],
            holder["producer_epoch"],
            text(&holder["client_id"]),
            text(&holder["host"]),
            escaped(&holder["principal"])
        )?;
        writeln!(
            out,
            "  since {} ({} ago, times out in {}), from offset {}: {} records, {} bytes, last activity {}",
            time(&holder["opened_at_ms"]),
            duration(&holder["age_ms"]),
            duration(&holder["times_out_in_ms"]),
            holder["first_offset"],
            holder["records"],
            holder["bytes"],
            time(&holder["last_activity_ms"])
        )?;
        if p["open_transactions"].as_u64() > Some(1) {
            writeln!(
                out,
                "  {} transactions are open here",
                p["open_transactions"]
            )?;
        }
        if let Some(id) = holder["transactional_id"].as_str() {
            writeln!(
                out,
                "  what aborting it would discard: tidemark txn abort {id}"
            )?;
        }
    }
    Ok(())
}

pub(crate) fn explain(value: &Value, out: &mut dyn Write) -> Result {
    writeln!(
        out,
        "{}-{}: {}",
        text(&value["topic"]),
        value["partition"],
        text(&value["says"])
    )?;
    let batch = &value["batch"];
    if !batch.is_null() {
        writeln!(
            out,
            "  batch {}..{} of {} bytes ({}), producer {}:{}, tick {}, written {}",
            batch["base_offset"],
            batch["last_offset"],
            batch["bytes"],
            text(&batch["kind"]),
            batch["producer_id"],
            batch["producer_epoch"],
            batch["tick"],
            time(&batch["written_at_ms"])
        )?;
    }
    let t = &value["transaction"];
    if !t.is_null() {
        writeln!(
            out,
            "  transaction {}: first offset here {}, marker at {} (tick {}), ended {}",
            text(&t["outcome"]),
            text(&t["first_offset"]),
            text(&t["marker_offset"]),
            text(&t["marker_tick"]),
            time(&t["ended_at_ms"])
        )?;
    }
    writeln!(
        out,
        "  log start {}, last stable offset {}, high watermark {}",
        value["log_start_offset"], value["last_stable_offset"], value["high_watermark"]
    )
}

pub(crate) fn abort(value: &Value, out: &mut dyn Write) -> Result {
    describe(&value["transaction"], out)?;
    let offsets = match value["discards_group_offsets"].as_bool() {
        Some(true) => " and a group's offsets",
        _ => "",
    };
    let what = format!(
        "{} records ({} bytes){offsets}",
        value["discarded_records"], value["discarded_bytes"]
    );
    match value["aborted"].as_bool() {
        Some(true) => writeln!(
            out,
            "Aborted: {what} are discarded. Its client meets the abort with its next request."
        ),
        _ => writeln!(
            out,
            "Nothing was done. An abort would discard {what}; add --yes to do it."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_told_in_utc() {
        assert_eq!(time(&json!(0)), "1970-01-01 00:00:00.000");
        assert_eq!(time(&json!(951_782_400_000_i64)), "2000-02-29 00:00:00.000");
        assert_eq!(
            time(&json!(1_767_225_599_999_i64)),
            "2025-12-31 23:59:59.999"
        );
        assert_eq!(time(&Value::Null), "-");
    }

    #[test]
    fn durations_have_two_units() {
        for (ms, told) in [
            (1_234, "1.2 s"),
            (-500, "-0.5 s"),
            (200_000, "3 min 20 s"),
            (7_500_000, "2 h 5 min"),
            (100_000_000, "1 d 3 h"),
        ] {
            assert_eq!(duration(&json!(ms)), told);
        }
    }

    #[test]
    fn columns_line_up() {
        let mut out = String::new();
        table(&mut out, &[row(&["A", "LONG"]), row(&["longer", "x"])]).unwrap();
        assert_eq!(out, "A       LONG\nlonger  x\n");
    }
}
