//! DeleteTopics, by name or by id (v6).

use tidemark_types::{ErrorCode, TopicId};

use crate::Refusal;
use crate::image::{MetadataImage, TopicImage};
use crate::record::MetadataRecord;

impl MetadataImage {
    /// Decides on the deletion of a topic by its name.
    ///
    /// Kafka in KRaft mode lets anybody who may delete topics delete the coordinators' own, with
    /// every group and transaction; Tidemark refuses (INVALID_TOPIC_EXCEPTION).
    pub fn decide_delete_topic(&self, name: &str) -> Result<MetadataRecord, Refusal> {
        match self.topic(name) {
            Some(topic) => delete(topic),
            None => Err((
                ErrorCode::UnknownTopicOrPartition,
                "This server does not host this topic-partition.".to_owned(),
            )),
        }
    }

    /// Decides on the deletion of a topic by its id.
    pub fn decide_delete_topic_by_id(&self, id: TopicId) -> Result<MetadataRecord, Refusal> {
        match self.topic_by_id(id) {
            Some(topic) => delete(topic),
            None => Err((
                ErrorCode::UnknownTopicId,
                "This server does not host this topic ID.".to_owned(),
            )),
        }
    }
}

fn delete(topic: &TopicImage) -> Result<MetadataRecord, Refusal> {
    if topic.internal {
        let message = format!("Internal topic {} cannot be deleted.", topic.name);
        return Err((ErrorCode::InvalidTopicException, message));
    }
    Ok(MetadataRecord::TopicDeleted { id: topic.id })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidemark_types::NodeId;

    use super::*;

    #[test]
    fn a_topic_is_deleted_by_name_or_id_but_never_an_internal_one() {
        let mut image = MetadataImage::empty();
        for record in MetadataImage::bootstrap_records("c", NodeId(0), 1) {
            image.apply(&record);
        }
        let id = TopicId([1; 16]);
        image.apply(&MetadataRecord::TopicCreated {
            name: "t".to_owned(),
            id,
            partitions: 1,
            config: BTreeMap::new(),
        });

        let deleted = MetadataRecord::TopicDeleted { id };
        assert_eq!(image.decide_delete_topic("t"), Ok(deleted.clone()));
        assert_eq!(image.decide_delete_topic_by_id(id), Ok(deleted.clone()));
        let code = |result: Result<_, Refusal>| result.map(|_: MetadataRecord| ()).unwrap_err().0;
        assert_eq!(
            code(image.decide_delete_topic("__consumer_offsets")),
            ErrorCode::InvalidTopicException
        );

        image.apply(&deleted);
        assert_eq!(
            code(image.decide_delete_topic("t")),
            ErrorCode::UnknownTopicOrPartition
        );
        assert_eq!(
            code(image.decide_delete_topic_by_id(id)),
            ErrorCode::UnknownTopicId
        );
    }
}
