use std::sync::Arc;

use crate::image::MetadataImage;
use crate::topic_name::is_internal_topic;

impl MetadataImage {
    /// What must hold after every record, in order; the error names what does not. For tests and
    /// the simulator.
    pub fn check(&self) -> Result<(), String> {
        let mut partitions = 0;
        for topic in self.topics() {
            let name = &topic.name;
            match self.topic_by_id(topic.id) {
                Some(by_id) if Arc::ptr_eq(by_id, topic) => {}
                _ => return Err(format!("topic {name} is not found by its id {}", topic.id)),
            }
            if topic.partitions < 1 {
                return Err(format!("topic {name} has {} partitions", topic.partitions));
            }
            if topic.internal != is_internal_topic(name) {
                return Err(format!("topic {name} is internal: {}", topic.internal));
            }
            partitions += i64::from(topic.partitions);
        }
        if self.topics().len() != self.topic_ids() {
            return Err("an id is left of a topic that is gone".to_owned());
        }
        if partitions != self.partition_count() {
            return Err(format!(
                "{partitions} partitions, counted as {}",
                self.partition_count()
            ));
        }
        let mut epochs = self.journal_epochs().iter().map(|entry| entry.epoch);
        let mut last = i32::MIN;
        if let Some(fallen) = epochs.find(|epoch| {
            let falls = *epoch <= last;
            last = *epoch;
            falls
        }) {
            return Err(format!(
                "journal epoch {fallen} is not above the one before"
            ));
        }
        for (partition, range) in self.producer_id_blocks() {
            if range.end() > self.next_producer_id() {
                return Err(format!(
                    "producer ids up to {} of coordinator partition {partition} may be given again",
                    range.end()
                ));
            }
        }
        self.acls().check()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use tidemark_authorizer::{Acl, AclFilter, Operation, PatternType, Permission, ResourceType};
    use tidemark_types::{NodeId, TopicId};

    use super::*;
    use crate::{CreateTopicRequest, MetadataRecord, TopicLimits};

    #[derive(Clone, Debug)]
    enum Step {
        Create(u8, i32),
        Delete(u8),
        Config(u8, String),
        Grow(u8, i32),
        Block(i32, i64),
        Epoch,
        Allow(u8, u8),
        Forbid(u8, u8),
    }

    fn acl(principal: u8, topic: u8) -> Acl {
        Acl {
            resource_type: ResourceType::Topic,
            name: format!("t{topic}").into(),
            pattern_type: PatternType::ALL[usize::from(topic % 2)],
            principal: format!("User:u{principal}").into(),
            host: "*".into(),
            operation: Operation::Read,
            permission: Permission::Allow,
        }
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u8..6, 1i32..5).prop_map(|(t, n)| Step::Create(t, n)),
            (0u8..6).prop_map(Step::Delete),
            (0u8..6, "[0-9]{1,4}").prop_map(|(t, v)| Step::Config(t, v)),
            (0u8..6, 1i32..9).prop_map(|(t, n)| Step::Grow(t, n)),
            (0i32..50, 1i64..1000).prop_map(|(p, n)| Step::Block(p, n)),
            Just(Step::Epoch),
            (0u8..4, 0u8..6).prop_map(|(p, t)| Step::Allow(p, t)),
            (0u8..4, 0u8..6).prop_map(|(p, t)| Step::Forbid(p, t)),
        ]
    }

    proptest! {
        /// However an image came to be, its snapshot rebuilds it, and so do its records after a
        /// trip through their bytes.
        #[test]
        fn a_snapshot_rebuilds_the_image(steps in proptest::collection::vec(any_step(), 0..40)) {
            let mut image = MetadataImage::empty();
            for record in MetadataImage::bootstrap_records("cluster", NodeId(3), 9) {
                image.apply(&record);
            }
            for (n, step) in steps.into_iter().enumerate() {
                let id_of = |t: u8, image: &MetadataImage| {
                    image.topic(&format!("t{t}")).map(|topic| topic.id)
                };
                let record = match step {
                    Step::Create(t, partitions) => {
                        let mut id = [0xee; 16];
                        id[0] = n as u8;
                        let name = format!("t{t}");
                        let request = CreateTopicRequest {
                            partitions,
                            ..CreateTopicRequest::with_defaults(&name)
                        };
                        let limits = TopicLimits::default();
                        image.decide_create_topic(&request, &limits, TopicId(id)).ok()
                    }
                    Step::Delete(t) => image.decide_delete_topic(&format!("t{t}")).ok(),
                    Step::Config(t, value) => id_of(t, &image).map(|id| {
                        let config = BTreeMap::from([("retention.ms".to_owned(), value)]);
                        MetadataRecord::TopicConfigSet { id, config }
                    }),
                    Step::Grow(t, partitions) => id_of(t, &image)
                        .map(|id| MetadataRecord::PartitionsAdded { id, partitions }),
                    Step::Block(p, count) => image.decide_producer_id_block(p, count).ok(),
                    Step::Epoch => Some(MetadataRecord::JournalEpoch {
                        epoch: image.journal_epoch() + 1,
                        wall_ms: n as i64,
                        cut_bytes: 0,
                    }),
                    Step::Allow(p, t) => image
                        .decide_create_acls(&[acl(p, t)], 10)
                        .pop()
                        .and_then(|added| added.ok().flatten()),
                    Step::Forbid(p, t) => {
                        let acl = acl(p, t);
                        let filter = AclFilter {
                            name: Some(acl.name.clone()),
                            principal: Some(acl.principal.clone()),
                            ..AclFilter::ANY
                        };
                        let found = image.acls().matching(&filter).next();
                        found.map(MetadataRecord::AclRemoved)
                    }
                };
                let Some(record) = record else { continue };
                let read = MetadataRecord::decode(&record.key(), &record.value());
                prop_assert_eq!(read.as_ref(), Ok(&record));
                let before = image.next_producer_id();
                image.apply(&record);
                prop_assert_eq!(image.check(), Ok(()));
                prop_assert!(image.next_producer_id() >= before);
            }
            let mut rebuilt = MetadataImage::empty();
            for record in image.snapshot_records() {
                rebuilt.apply(&record);
            }
            prop_assert_eq!(rebuilt, image);
        }
    }

    #[test]
    fn readers_keep_the_image_they_took() {
        let mut image = MetadataImage::empty();
        let id = TopicId([1; 16]);
        image.apply(&MetadataRecord::TopicCreated {
            name: "t".to_owned(),
            id,
            partitions: 1,
            config: BTreeMap::new(),
        });
        let taken = image.clone();
        image.apply(&MetadataRecord::TopicDeleted { id });
        assert!(image.topic("t").is_none());
        assert_eq!(taken.topic("t").unwrap().partitions, 1);
    }

    #[test]
    fn producer_ids_are_never_given_twice() {
        let mut image = MetadataImage::empty();
        let mut last_end = 0;
        for partition in [3, 3, 7, 3] {
            let record = image.decide_producer_id_block(partition, 1000).unwrap();
            let MetadataRecord::ProducerIdBlock { first, count, .. } = record else {
                panic!("{record:?}");
            };
            assert_eq!(first, last_end);
            last_end = first + count;
            image.apply(&record);
        }
        assert_eq!(image.next_producer_id(), 4000);
        assert!(image.decide_producer_id_block(0, i64::MAX).is_err());
    }

    #[test]
    fn a_remade_topic_never_shows_a_lower_leader_epoch() {
        let mut image = MetadataImage::empty();
        let create = |n: u8| MetadataRecord::TopicCreated {
            name: "t".to_owned(),
            id: TopicId([n; 16]),
            partitions: 1,
            config: BTreeMap::new(),
        };
        let epoch = |image: &MetadataImage| {
            let topic = image.topic("t").unwrap();
            topic.leader_epoch(image.journal_epoch())
        };
        image.apply(&create(1));
        let first = epoch(&image);
        image.apply(&MetadataRecord::JournalEpoch {
            epoch: 1,
            wall_ms: 0,
            cut_bytes: 10,
        });
        let second = epoch(&image);
        assert!(second > first);
        image.apply(&MetadataRecord::TopicDeleted {
            id: TopicId([1; 16]),
        });
        image.apply(&create(2));
        assert_eq!(epoch(&image), second);
    }
}
