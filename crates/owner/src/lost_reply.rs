//! What a reply becomes when what it tells of was lost.

use tidemark_group_coordinator::{FetchedOffset, JoinReply, LeaveReply, SyncReply};
use tidemark_metadata::Refusal;
use tidemark_types::{ErrorCode, TopicId};

use crate::command::Reply;
use crate::commands::Produced;

impl Reply {
    /// The same request's refusal: another broker leads now, or this one anew, and the client asks
    /// whoever it is. Also for reads and refusals, as they were decided from what was lost. `None`
    /// where the answer has no place for it: then the request is not answered.
    pub fn lost(self) -> Option<Reply> {
        const CODE: ErrorCode = ErrorCode::NotCoordinator;
        let codes = |codes: Vec<ErrorCode>| vec![CODE; codes.len()];
        Some(match self {
            Reply::Produce(produced) => {
                let refused = Produced::refused(ErrorCode::NotLeaderOrFollower);
                Reply::Produce(vec![refused; produced.len()])
            }
            Reply::DeleteRecords(all) => {
                Reply::DeleteRecords(vec![Err(ErrorCode::NotLeaderOrFollower); all.len()])
            }
            Reply::DescribeProducers(all) => Reply::DescribeProducers(
                all.iter()
                    .map(|_| Err(ErrorCode::NotLeaderOrFollower))
                    .collect(),
            ),
            Reply::InitProducerId(_) => Reply::InitProducerId(Err(CODE)),
            Reply::AddPartitions(all) => Reply::AddPartitions(codes(all)),
            Reply::AddOffsets(_) => Reply::AddOffsets(CODE),
            Reply::TxnOffsetCommit(all) => Reply::TxnOffsetCommit(codes(all)),
            Reply::EndTxn(_) => Reply::EndTxn(Err(CODE)),
            Reply::WriteTxnMarkers(all) => {
                Reply::WriteTxnMarkers(vec![ErrorCode::NotLeaderOrFollower; all.len()])
            }
            Reply::DescribeTransactions(all) => {
                Reply::DescribeTransactions(all.iter().map(|_| Err(CODE)).collect())
            }
            Reply::Join(reply) => Reply::Join(JoinReply {
                error: CODE,
                generation_id: -1,
                protocol_type: None,
                protocol_name: None,
                leader: String::new(),
                skip_assignment: false,
                members: Vec::new(),
                ..reply
            }),
            Reply::Sync(_) => Reply::Sync(SyncReply {
                error: CODE,
                protocol_type: None,
                protocol_name: None,
                assignment: Default::default(),
            }),
            Reply::Heartbeat(_) => Reply::Heartbeat(CODE),
            Reply::Leave(_) => Reply::Leave(LeaveReply {
                error: CODE,
                members: Vec::new(),
            }),
            Reply::OffsetCommit(all) => Reply::OffsetCommit(codes(all)),
            Reply::OffsetFetch(groups) => {
                let lost = |offset: FetchedOffset| FetchedOffset {
                    error: CODE,
                    offset: -1,
                    ..offset
                };
                let groups = groups.into_iter();
                Reply::OffsetFetch(groups.map(|g| g.into_iter().map(lost).collect()).collect())
            }
            Reply::DeleteGroups(all) => Reply::DeleteGroups(codes(all)),
            Reply::OffsetDelete(_) => Reply::OffsetDelete(Err(CODE)),
            Reply::CreateTopics(mut topics) => {
                for topic in &mut topics {
                    (topic.error, topic.message) = (ErrorCode::NotController, None);
                    (topic.id, topic.partitions) = (TopicId::ZERO, -1);
                    topic.config.clear();
                }
                Reply::CreateTopics(topics)
            }
            Reply::DeleteTopics(mut topics) => {
                for topic in &mut topics {
                    (topic.error, topic.message) = (ErrorCode::NotController, None);
                }
                Reply::DeleteTopics(topics)
            }
            Reply::CreatePartitions(all) => Reply::CreatePartitions(refusals(all)),
            Reply::AlterConfigs(all) => Reply::AlterConfigs(refusals(all)),
            Reply::AlterScram(all) => Reply::AlterScram(
                all.into_iter()
                    .map(|(user, _)| (user, Err(not_the_controller())))
                    .collect(),
            ),
            Reply::CreateAcls(all) => Reply::CreateAcls(refusals(all)),
            Reply::DeleteAcls(all) => Reply::DeleteAcls(refusals(all)),
            Reply::NoteRefused => Reply::NoteRefused,
            Reply::AbortTransaction(_) => Reply::AbortTransaction(Err(CODE)),
            Reply::Settle
            | Reply::Inspect(_)
            | Reply::ListGroups(_)
            | Reply::DescribeGroups(_)
            | Reply::ListTransactions(_) => return None,
        })
    }
}

fn refusals<T>(all: Vec<Result<T, Refusal>>) -> Vec<Result<T, Refusal>> {
    all.iter().map(|_| Err(not_the_controller())).collect()
}

fn not_the_controller() -> Refusal {
    let message = "This is not the correct controller for this cluster.";
    (ErrorCode::NotController, message.to_owned())
}
