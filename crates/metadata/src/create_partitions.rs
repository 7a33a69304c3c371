//! CreatePartitions: a topic gets more partitions, never fewer.

use tidemark_types::ErrorCode;

use crate::Refusal;
use crate::create_topic::TopicLimits;
use crate::image::MetadataImage;
use crate::record::MetadataRecord;

impl MetadataImage {
    /// Decides on a topic's new partition count. `assignments`: the replicas of each partition that
    /// is added, if they were chosen by hand.
    ///
    /// A coordinator's own topic keeps its count for ever, because ids are hashed over it
    /// (INVALID_PARTITIONS; Kafka would do it, and lose its groups).
    pub fn decide_create_partitions(
        &self,
        name: &str,
        count: i32,
        assignments: Option<&[Vec<i32>]>,
        limits: &TopicLimits,
    ) -> Result<MetadataRecord, Refusal> {
        let refuse = |code, message: String| Err((code, message));
        let Some(topic) = self.topic(name) else {
            let message = "This server does not host this topic-partition.".to_owned();
            return refuse(ErrorCode::UnknownTopicOrPartition, message);
        };
        let present = topic.partitions;
        if count == present {
            let message = format!("Topic already has {present} partition(s).");
            return refuse(ErrorCode::InvalidPartitions, message);
        }
        if count < present {
            let message = format!(
                "The topic {name} currently has {present} partition(s); {count} would not be an \
                 increase."
            );
            return refuse(ErrorCode::InvalidPartitions, message);
        }
        if topic.internal {
            let message = format!("The internal topic {name} keeps its {present} partitions.");
            return refuse(ErrorCode::InvalidPartitions, message);
        }
        let added = count - present;
        if let Some(assignments) = assignments {
            if usize::try_from(added) != Ok(assignments.len()) {
                let message = format!(
                    "Attempted to add {added} additional partition(s), but only {} assignment(s) \
                     were specified.",
                    assignments.len()
                );
                return refuse(ErrorCode::InvalidReplicaAssignment, message);
            }
            for brokers in assignments {
                self.check_replicas(brokers)?;
            }
        }
        self.check_limits(count, added, limits)?;
        Ok(MetadataRecord::PartitionsAdded {
            id: topic.id,
            partitions: count,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidemark_types::{NodeId, TopicId};

    use super::*;

    fn image() -> MetadataImage {
        let mut image = MetadataImage::empty();
        for record in MetadataImage::bootstrap_records("c", NodeId(3), 1) {
            image.apply(&record);
        }
        image.apply(&MetadataRecord::TopicCreated {
            name: "t".to_owned(),
            id: TopicId([1; 16]),
            partitions: 4,
            config: BTreeMap::new(),
        });
        image
    }

    #[test]
    fn a_topic_grows_and_nothing_else() {
        let limits = TopicLimits {
            max_partitions_per_topic: 9,
            max_partitions: 108,
            ..TopicLimits::default()
        };
        let here = || vec![3];
        type Case<'a> = (&'a str, i32, Option<Vec<Vec<i32>>>, Option<ErrorCode>);
        let cases: [Case<'_>; 14] = [
            ("t", 5, None, None),
            ("t", 8, None, None),
            ("t", 6, Some(vec![here(), here()]), None),
            ("t", 4, None, Some(ErrorCode::InvalidPartitions)),
            ("t", 3, None, Some(ErrorCode::InvalidPartitions)),
            ("t", -1, None, Some(ErrorCode::InvalidPartitions)),
            ("t", 9, None, Some(ErrorCode::PolicyViolation)),
            ("t", 10, None, Some(ErrorCode::InvalidPartitions)),
            ("t", i32::MAX, None, Some(ErrorCode::InvalidPartitions)),
            ("no", 5, None, Some(ErrorCode::UnknownTopicOrPartition)),
            (
                "__consumer_offsets",
                60,
                None,
                Some(ErrorCode::InvalidPartitions),
            ),
            (
                "t",
                6,
                Some(vec![here()]),
                Some(ErrorCode::InvalidReplicaAssignment),
            ),
            (
                "t",
                5,
                Some(vec![vec![0]]),
                Some(ErrorCode::InvalidReplicaAssignment),
            ),
            (
                "t",
                5,
                Some(vec![vec![]]),
                Some(ErrorCode::InvalidReplicaAssignment),
            ),
        ];
        for (name, count, assignments, refused) in cases {
            let decided =
                image().decide_create_partitions(name, count, assignments.as_deref(), &limits);
            match refused {
                Some(code) => assert_eq!(decided.unwrap_err().0, code, "{name} {count}"),
                None => {
                    let mut image = image();
                    image.apply(&decided.unwrap());
                    assert_eq!(image.topic(name).unwrap().partitions, count);
                    assert_eq!(image.partition_count(), 100 + i64::from(count));
                }
            }
        }
    }
}
