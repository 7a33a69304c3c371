//! Producers that were idle for long: how long that is, and the records that say which they are.

use std::collections::BTreeMap;

use tidemark_types::{ProducerId, TopicPartitionId};

use crate::image::MetadataImage;
use crate::record::{MetadataRecord, PRODUCERS_EXPIRED_LEVEL};
use crate::topic_config::PRODUCER_ID_EXPIRATION_MS;

impl MetadataImage {
    /// `producer.id.expiration.ms` in force: the dynamic value of this broker, of every broker, or
    /// the one it was started with.
    pub fn producer_id_expiration_ms(&self, at_start_ms: i64) -> i64 {
        let set = |config: &BTreeMap<String, String>| {
            config.get(PRODUCER_ID_EXPIRATION_MS.name)?.parse().ok()
        };
        set(self.broker_config(Some(self.node_id())))
            .or_else(|| set(self.broker_config(None)))
            .unwrap_or(at_start_ms)
    }

    /// The records with which partitions forget these producers.
    pub fn decide_expire_producers(
        &self,
        expired: Vec<(TopicPartitionId, Vec<ProducerId>)>,
    ) -> Vec<MetadataRecord> {
        let level = PRODUCERS_EXPIRED_LEVEL;
        // A data directory from before this kind of record: it is raised with the first one.
        let raise = !expired.is_empty() && self.feature_level() < level;
        raise
            .then_some(MetadataRecord::FeatureLevel { level })
            .into_iter()
            .chain(expired.into_iter().map(|(partition, producer_ids)| {
                MetadataRecord::ProducersExpired {
                    partition,
                    producer_ids,
                }
            }))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use tidemark_types::NodeId;

    use super::*;

    #[test]
    fn the_nearest_value_is_in_force() {
        let mut image = MetadataImage::empty();
        for record in MetadataImage::bootstrap_records("c", NodeId(3), 1) {
            image.apply(&record);
        }
        assert_eq!(image.producer_id_expiration_ms(7), 7);
        for (node, value) in [(None, 20_000), (Some(NodeId(3)), 30_000)] {
            image.apply(&MetadataRecord::BrokerConfigSet {
                node,
                config: BTreeMap::from([(
                    "producer.id.expiration.ms".to_owned(),
                    value.to_string(),
                )]),
            });
            assert_eq!(image.producer_id_expiration_ms(7), value);
        }
    }
}
