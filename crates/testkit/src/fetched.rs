//! What a Fetch brought, decoded, and what a reader makes of it.

use std::collections::BTreeSet;

use bytes::Bytes;
use kafka_protocol::messages::FetchResponse;
use kafka_protocol::messages::fetch_response::PartitionData;
use tidemark_record_batch::{
    BatchHeader, ControlType, DecompressLimits, batches, crc_is_valid, parse_control, records,
};
use tidemark_types::ErrorCode;

use crate::requests::error_code;

/// One partition of a Fetch response.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub partition: i32,
    pub error: ErrorCode,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    /// (producer id, first offset); `None` if the response has none, as for read_uncommitted.
    pub aborted: Option<Vec<(i64, i64)>>,
    pub batches: Vec<FetchedBatch>,
}

/// One batch, its CRC checked.
#[derive(Clone, Debug)]
pub struct FetchedBatch {
    pub header: BatchHeader,
    /// Of a control batch.
    pub control: Option<ControlType>,
    /// Of a data batch.
    pub records: Vec<FetchedRecord>,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedRecord {
    pub offset: i64,
    pub timestamp: i64,
    pub value: Bytes,
}

impl FetchedRecord {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }
}

/// The partitions of a response, in its order. Everything but a truncated last batch is checked.
pub fn fetched(response: &FetchResponse) -> Vec<Fetched> {
    response
        .responses
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(partition))
        .collect()
}

fn partition(data: &PartitionData) -> Fetched {
    let bytes = data
        .records
        .clone()
        .expect("records are empty when there are none, never null");
    let batches = batches(&bytes)
        .map(|batch| {
            let (header, range) = batch.expect("a fetched batch parses");
            let batch = bytes.slice(range);
            assert!(
                crc_is_valid(&batch),
                "CRC of the batch at {}",
                header.base_offset
            );
            let control = parse_control(&batch).expect("a marker parses");
            let data = match control {
                Some(_) => Vec::new(),
                None => records(&batch, &DecompressLimits::default())
                    .expect("a fetched batch opens")
                    .map(|record| {
                        let record = record.expect("a fetched record parses");
                        FetchedRecord {
                            offset: header.base_offset + i64::from(record.offset_delta),
                            timestamp: record.timestamp,
                            value: record.value.unwrap_or_default(),
                        }
                    })
                    .collect(),
            };
            FetchedBatch {
                header,
                control: control.map(|(kind, _)| kind),
                records: data,
            }
        })
        .collect();
    Fetched {
        partition: data.partition_index,
        error: error_code(data.error_code),
        high_watermark: data.high_watermark,
        last_stable_offset: data.last_stable_offset,
        log_start_offset: data.log_start_offset,
        aborted: data.aborted_transactions.as_ref().map(|aborted| {
            aborted
                .iter()
                .map(|a| (a.producer_id.0, a.first_offset))
                .collect()
        }),
        batches,
    }
}

impl Fetched {
    /// The records of all data batches, aborted ones included.
    pub fn records(&self) -> Vec<FetchedRecord> {
        self.batches
            .iter()
            .flat_map(|b| b.records.clone())
            .collect()
    }

    /// The values of all data batches, as text.
    pub fn values(&self) -> Vec<String> {
        self.records().iter().map(FetchedRecord::text).collect()
    }

    /// The markers: (producer id, offset, kind).
    pub fn markers(&self) -> Vec<(i64, i64, ControlType)> {
        self.batches
            .iter()
            .filter_map(|b| Some((b.header.producer_id.0, b.header.base_offset, b.control?)))
            .collect()
    }

    /// What a read_committed consumer hands out: data batches of producers that are in an aborted
    /// transaction are left out, as Kafka's clients do it.
    pub fn committed(&self) -> Vec<FetchedRecord> {
        let mut to_come = self
            .aborted
            .clone()
            .expect("a read_committed fetch lists aborted ones");
        to_come.sort_by_key(|(_, first)| *first);
        let mut to_come = to_come.into_iter().peekable();
        let mut aborting = BTreeSet::new();
        let mut out = Vec::new();
        for batch in &self.batches {
            let header = &batch.header;
            while let Some((producer_id, _)) =
                to_come.next_if(|(_, first)| *first <= header.last_offset())
            {
                aborting.insert(producer_id);
            }
            match batch.control {
                Some(ControlType::Abort) => {
                    aborting.remove(&header.producer_id.0);
                }
                Some(ControlType::Commit) => {}
                None if header.attributes.is_transactional()
                    && aborting.contains(&header.producer_id.0) => {}
                None => out.extend(batch.records.iter().cloned()),
            }
        }
        out
    }

    /// Where a consumer goes on: after the last batch, `None` if there was none.
    pub fn next_offset(&self) -> Option<i64> {
        self.batches.last().map(|b| b.header.next_offset())
    }
}
