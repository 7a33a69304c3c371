//! What the internal topics say, from their batches.

use crate::data_dir::{DataDir, batch_records};
use crate::files::Files;
use crate::finding::{Bad, Findings, mend};
use crate::groups::{GroupRecord, Groups};
use crate::ids::{PartitionId, TopicId};
use crate::metadata::{Metadata, MetadataRecord};
use crate::partition::Batch;
use crate::records::Record;
use crate::transactions::{self, TransactionalIds};

/// Reads the internal topics' logs into `data`.
pub(crate) fn fold(files: &dyn Files, data: &mut DataDir, findings: &mut Findings) {
    let (mut metadata, mut groups, mut ids) = (
        Metadata::default(),
        Groups::default(),
        TransactionalIds::new(),
    );
    for (id, partition) in &data.partitions {
        let internal = [
            TopicId::CLUSTER_METADATA,
            TopicId::CONSUMER_OFFSETS,
            TopicId::TRANSACTION_STATE,
        ];
        if !internal.contains(&id.topic) {
            continue;
        }
        for batch in &partition.batches {
            let folded = fold_batch(files, *id, batch, &mut metadata, &mut groups, &mut ids);
            if let Err((what, newer)) = folded {
                let bad = Bad {
                    newer,
                    ..Bad::new(batch.place.position, format!("{id}: {what}"))
                };
                findings.bad(bad, &batch.place.file, mend::COPY);
            }
        }
    }
    data.metadata = metadata;
    data.groups = groups;
    data.transactional_ids = ids;
}

pub(crate) fn metadata_record(record: &Record) -> Result<MetadataRecord, (String, bool)> {
    let key = record.key.as_deref().unwrap_or_default();
    MetadataRecord::parse(key, record.value.as_deref().unwrap_or_default())
}

fn fold_batch(
    files: &dyn Files,
    id: PartitionId,
    batch: &Batch,
    metadata: &mut Metadata,
    groups: &mut Groups,
    ids: &mut TransactionalIds,
) -> Result<(), (String, bool)> {
    let header = &batch.header;
    if header.is_control() {
        if let Some(marker) = batch.marker
            && id.topic == TopicId::CONSUMER_OFFSETS
        {
            groups.end(id.partition, header.producer_id, marker.commit);
        }
        return Ok(());
    }
    let damaged = |what: String| (what, false);
    for record in batch_records(files, batch).map_err(damaged)? {
        let key = record.key.as_deref().unwrap_or_default();
        let value = record.value.as_deref();
        match id.topic {
            TopicId::CLUSTER_METADATA => {
                metadata.apply(batch.journal_index, metadata_record(&record)?);
            }
            TopicId::CONSUMER_OFFSETS => {
                let producer = header.is_transactional().then_some(header.producer_id);
                let record = GroupRecord::parse(key, value, record.offset).map_err(damaged)?;
                groups.apply(id.partition, record, producer);
            }
            _ => {
                let transactional_id = transactions::parse_key(key).map_err(damaged)?;
                match value {
                    Some(value) => {
                        let state = transactions::parse_value(value).map_err(damaged)?;
                        ids.insert(transactional_id, state);
                    }
                    None => drop(ids.remove(&transactional_id)),
                }
            }
        }
    }
    Ok(())
}
