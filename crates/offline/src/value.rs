//! How batches, records and times are shown.

use serde_json::{Map, Value, json};
use tidemark_histcheck::{
    BatchHeader, GroupRecord, Marker, Metadata, MetadataRecord, PartitionId, Record, TopicId,
    parse_transactional_id_key, parse_transactional_id_value, tick_ms,
};

/// The tick's counter below its milliseconds.
const LOGICAL_MASK: u64 = (1 << 18) - 1;

/// `2026-11-30T02:00:00.123Z+5`: the wall-clock part of a tick and its counter.
pub(crate) fn tick_text(tick: u64) -> String {
    format!("{}+{}", time_text(tick_ms(tick)), tick & LOGICAL_MASK)
}

/// Milliseconds since 1970 as a date; years beyond four digits as the number itself.
pub(crate) fn time_text(ms: i64) -> String {
    const DAY_MS: i64 = 86_400_000;
    let (days, rest) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    if !(-719_162..2_932_897).contains(&days) {
        return ms.to_string();
    }
    // Days since 0000-03-01, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (h, m, s, milli) = (
        rest / 3_600_000,
        rest / 60_000 % 60,
        rest / 1000 % 60,
        rest % 1000,
    );
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{milli:03}Z")
}

/// Names of topics, where they are known.
pub(crate) struct Names(pub(crate) Metadata);

impl Names {
    pub(crate) fn topic(&self, id: TopicId) -> Option<&str> {
        match id {
            TopicId::CLUSTER_METADATA => Some("__cluster_metadata"),
            TopicId::CONSUMER_OFFSETS => Some("__consumer_offsets"),
            TopicId::TRANSACTION_STATE => Some("__transaction_state"),
            id => self.0.topic_by_id(id).map(|topic| topic.name.as_str()),
        }
    }

    /// `orders-3`, or with the topic's id where its name is not known.
    pub(crate) fn partition(&self, id: PartitionId) -> String {
        match self.topic(id.topic) {
            Some(name) => format!("{name}-{}", id.partition),
            None => id.to_string(),
        }
    }

    pub(crate) fn partition_json(&self, id: PartitionId, out: &mut Map<String, Value>) {
        out.insert("topic".to_owned(), json!(self.topic(id.topic)));
        out.insert("topic_id".to_owned(), json!(id.topic.to_string()));
        out.insert("partition".to_owned(), json!(id.partition));
    }
}

fn control(header: &BatchHeader, marker: Option<Marker>) -> Option<&'static str> {
    match marker {
        Some(marker) if marker.commit => Some("commit"),
        Some(_) => Some("abort"),
        None => header.is_control().then_some("other"),
    }
}

/// A batch on one line.
pub(crate) fn batch_text(header: &BatchHeader, marker: Option<Marker>) -> String {
    let mut out = format!("offsets {}..={}", header.base_offset, header.last_offset());
    match control(header, marker) {
        Some(control) => out.push_str(&format!(" {control} marker")),
        None => out.push_str(&format!(" {} records", header.record_count)),
    }
    out.push_str(&format!(" {} bytes", header.size_bytes));
    if header.codec() != "none" {
        out.push_str(&format!(" {}", header.codec()));
    }
    if header.producer_id >= 0 {
        out.push_str(&format!(
            " producer {}/{}",
            header.producer_id, header.producer_epoch
        ));
        if header.base_sequence >= 0 {
            out.push_str(&format!(
                " sequences {}..={}",
                header.base_sequence,
                header.last_sequence()
            ));
        }
    }
    if header.is_transactional() && !header.is_control() {
        out.push_str(" transactional");
    }
    let time = if header.is_log_append_time() {
        "append time"
    } else {
        "time"
    };
    out.push_str(&format!(" {time} {}", time_text(header.max_timestamp)));
    out.push_str(&format!(" leader epoch {}", header.leader_epoch));
    out
}

/// A batch's header as fields.
pub(crate) fn batch_json(
    header: &BatchHeader,
    marker: Option<Marker>,
    out: &mut Map<String, Value>,
) {
    let fields = json!({
        "base_offset": header.base_offset,
        "last_offset": header.last_offset(),
        "leader_epoch": header.leader_epoch,
        "records": header.record_count,
        "bytes": header.size_bytes,
        "crc": format!("{:08x}", header.crc),
        "codec": header.codec(),
        "timestamp_type": if header.is_log_append_time() { "LogAppendTime" } else { "CreateTime" },
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional(),
        "control": control(header, marker),
        "coordinator_epoch": marker.map(|marker| marker.coordinator_epoch),
    });
    if let Value::Object(fields) = fields {
        out.extend(fields);
    }
}

pub(crate) fn tick_json(tick: u64, out: &mut Map<String, Value>) {
    out.insert("tick".to_owned(), json!(tick));
    out.insert("tick_ms".to_owned(), json!(tick_ms(tick)));
}

/// Text where it is text, else hexadecimal digits.
fn bytes_json(bytes: Option<&[u8]>) -> Value {
    match bytes.map(|bytes| (std::str::from_utf8(bytes), bytes)) {
        None => Value::Null,
        Some((Ok(text), _)) => json!(text),
        Some((Err(_), bytes)) => {
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            json!({ "hex": hex })
        }
    }
}

/// A record; those of the internal topics with what they say.
pub(crate) fn record_json(topic: TopicId, record: &Record) -> Value {
    let mut out = Map::new();
    out.insert("offset".to_owned(), json!(record.offset));
    out.insert("timestamp".to_owned(), json!(record.timestamp));
    match said(topic, record) {
        Some(said) => {
            out.insert("says".to_owned(), json!(said));
        }
        None => {
            out.insert("key".to_owned(), bytes_json(record.key.as_deref()));
            out.insert("value".to_owned(), bytes_json(record.value.as_deref()));
        }
    }
    if !record.headers.is_empty() {
        let headers = record.headers.iter();
        let headers: Vec<Value> = headers
            .map(|(name, value)| json!([name, bytes_json(value.as_deref())]))
            .collect();
        out.insert("headers".to_owned(), json!(headers));
    }
    Value::Object(out)
}

pub(crate) fn record_text(topic: TopicId, record: &Record) -> String {
    let said = said(topic, record).unwrap_or_else(|| {
        let key = bytes_json(record.key.as_deref());
        let value = bytes_json(record.value.as_deref());
        match key {
            Value::Null => value.to_string(),
            key => format!("{key}: {value}"),
        }
    });
    format!("{} {} {said}", record.offset, time_text(record.timestamp))
}

/// What a record of an internal topic says; `None` for any other.
fn said(topic: TopicId, record: &Record) -> Option<String> {
    let key = record.key.as_deref().unwrap_or_default();
    let value = record.value.as_deref();
    match topic {
        TopicId::CLUSTER_METADATA => {
            let parsed = MetadataRecord::parse(key, value.unwrap_or_default());
            Some(parsed.map_or_else(|(what, _)| what, |record| format!("{record:?}")))
        }
        TopicId::CONSUMER_OFFSETS => Some(match GroupRecord::parse(key, value, record.offset) {
            Ok(GroupRecord::Offset(key, None)) => format!("{key:?} removed"),
            Ok(GroupRecord::Offset(key, Some(value))) => format!("{key:?}: {value:?}"),
            Ok(GroupRecord::Group(group, None)) => format!("group {group:?} removed"),
            Ok(GroupRecord::Group(group, Some(value))) => format!("group {group:?}: {value:?}"),
            Err(what) => what,
        }),
        TopicId::TRANSACTION_STATE => Some(match parse_transactional_id_key(key) {
            Err(what) => what,
            Ok(id) => match value.map(parse_transactional_id_value) {
                None => format!("transactional id {id:?} removed"),
                Some(Err(what)) => format!("transactional id {id:?}: {what}"),
                Some(Ok(state)) => {
                    format!("transactional id {id:?}: {} {state:?}", state.state_name())
                }
            },
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        assert_eq!(time_text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time_text(951_782_400_123), "2000-02-29T00:00:00.123Z");
        assert_eq!(time_text(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(time_text(1_798_682_399_999), "2026-12-31T01:59:59.999Z");
        assert_eq!(time_text(i64::MAX), i64::MAX.to_string());
        assert_eq!(tick_text((1 << 18) + 7), "1970-01-01T00:00:00.001Z+7");
    }
}
