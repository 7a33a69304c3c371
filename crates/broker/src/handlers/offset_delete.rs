//! OffsetDelete (47), v0: a group's positions in topics that none of its members reads (KIP-496).
//! Delete on the group, Read on each topic.

use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};
use tidemark_authorizer::Operation;
use tidemark_owner::{Command, OffsetDelete, Reply};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::{Cx, Pending, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: OffsetDeleteRequest) -> Pending {
    let rights = cx.rights();
    if !rights.may(Operation::Delete, Resource::Group(&request.group_id)) {
        let code = ErrorCode::GroupAuthorizationFailed.code();
        return Pending::Ready(cx.answer(&OffsetDeleteResponse::default().with_error_code(code)));
    }
    let names = request.topics.iter().map(|topic| &*topic.name);
    let forbidden = rights.forbidden(Operation::Read, names);
    let command = Command::OffsetDelete(OffsetDelete {
        group_id: request.group_id.to_string(),
        partitions: (forbidden.others(&request.topics))
            .flat_map(|topic| {
                let name = topic.name.to_string();
                let partitions = topic.partitions.iter();
                partitions.map(move |p| (name.clone(), p.partition_index))
            })
            .collect(),
    });
    cx.call(command, move |cx, reply| {
        let deleted = match reply {
            Some(Reply::OffsetDelete(deleted)) => deleted,
            Some(other) => wrong_reply(other),
            None => Err(ErrorCode::CoordinatorNotAvailable),
        };
        let mut codes = match deleted {
            Ok(codes) => codes.into_iter(),
            Err(error) => {
                return cx.answer(&OffsetDeleteResponse::default().with_error_code(error.code()));
            }
        };
        let topics = request
            .topics
            .into_iter()
            .enumerate()
            .map(|(nth, topic)| {
                let partitions = topic
                    .partitions
                    .iter()
                    .map(|partition| {
                        let code = match forbidden.has(nth) {
                            true => ErrorCode::TopicAuthorizationFailed,
                            false => codes.next().expect("one code per partition"),
                        };
                        OffsetDeleteResponsePartition::default()
                            .with_partition_index(partition.partition_index)
                            .with_error_code(code.code())
                    })
                    .collect();
                OffsetDeleteResponseTopic::default()
                    .with_name(topic.name)
                    .with_partitions(partitions)
            })
            .collect();
        cx.answer(&OffsetDeleteResponse::default().with_topics(topics))
    })
    .await
}
