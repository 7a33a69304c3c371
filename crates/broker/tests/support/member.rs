//! A member of a consumer group of the classic protocol.

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    SyncGroupRequest,
};
use tidemark_testkit::RawClient;
use tidemark_testkit::requests::{error_code, text};
use tidemark_types::ErrorCode;

/// JoinGroup at a version; `member_id` is empty for a newcomer.
pub fn join(version: i16, group: &str, member_id: &str, metadata: &[u8]) -> JoinGroupRequest {
    let request = JoinGroupRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_session_timeout_ms(10_000)
        .with_member_id(text(member_id))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![
            JoinGroupRequestProtocol::default()
                .with_name(text("range"))
                .with_metadata(Bytes::copy_from_slice(metadata)),
        ]);
    match version {
        0 => request,
        _ => request.with_rebalance_timeout_ms(10_000),
    }
}

/// SyncGroup of a leader that hands `assignment` to one member, or of a member without any.
pub fn sync(
    group: &str,
    generation: i32,
    member_id: &str,
    assignment: Option<&[u8]>,
) -> SyncGroupRequest {
    let assignments = assignment
        .map(|assignment| {
            SyncGroupRequestAssignment::default()
                .with_member_id(text(member_id))
                .with_assignment(Bytes::copy_from_slice(assignment))
        })
        .into_iter()
        .collect();
    SyncGroupRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_generation_id(generation)
        .with_member_id(text(member_id))
        .with_assignments(assignments)
}

pub fn heartbeat(group: &str, generation: i32, member_id: &str) -> HeartbeatRequest {
    HeartbeatRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_generation_id(generation)
        .with_member_id(text(member_id))
}

/// LeaveGroup v0-v2.
pub fn leave(group: &str, member_id: &str) -> LeaveGroupRequest {
    LeaveGroupRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_member_id(text(member_id))
}

/// The only member of its group.
pub struct Member {
    pub group: String,
    pub member_id: String,
    pub generation: i32,
}

impl Member {
    /// Joins an empty group and takes its assignment.
    pub async fn alone(client: &mut RawClient, group: &str) -> Member {
        let mut member = Member {
            group: group.to_owned(),
            member_id: String::new(),
            generation: -1,
        };
        let asked = client.send(5, &join(5, group, "", b"v0")).await;
        assert_eq!(error_code(asked.error_code), ErrorCode::MemberIdRequired);
        member.member_id = asked.member_id.to_string();
        member.rejoin(client, b"v0").await;
        member
    }

    /// Joins again; other metadata than before makes the leader's group rebalance.
    pub async fn rejoin(&mut self, client: &mut RawClient, metadata: &[u8]) {
        let joined = self.start_rebalance(client, metadata).await;
        let synced = client
            .send(
                3,
                &sync(
                    &self.group,
                    joined.generation_id,
                    &self.member_id,
                    Some(b"all"),
                ),
            )
            .await;
        assert_eq!(error_code(synced.error_code), ErrorCode::None);
    }

    /// The first half of [`Member::rejoin`]: the group then waits for the leader's assignment.
    pub async fn start_rebalance(
        &mut self,
        client: &mut RawClient,
        metadata: &[u8],
    ) -> JoinGroupResponse {
        let joined = client
            .send(5, &join(5, &self.group, &self.member_id, metadata))
            .await;
        assert_eq!(error_code(joined.error_code), ErrorCode::None);
        assert_eq!(joined.leader, joined.member_id, "the only one leads");
        self.generation = joined.generation_id;
        joined
    }
}
