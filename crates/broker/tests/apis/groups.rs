//! Classic groups on the wire: joining, leaving, listing, deleting.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, DescribeGroupsResponse, GroupId, HeartbeatRequest,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, ListGroupsRequest, OffsetDeleteRequest,
    SyncGroupRequest, SyncGroupResponse,
};
use tidemark_testkit::requests::{error_code, text, topic_name};
use tidemark_testkit::{RawClient, TestBroker, TxnProducer};
use tidemark_types::ErrorCode;

const OK: ErrorCode = ErrorCode::None;

fn group_id(id: &str) -> GroupId {
    GroupId(text(id))
}

/// A subscription as consumers write it.
fn subscription(topics: &[&str]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(1);
    bytes.put_i32(i32::try_from(topics.len()).unwrap());
    for topic in topics {
        bytes.put_i16(i16::try_from(topic.len()).unwrap());
        bytes.put_slice(topic.as_bytes());
    }
    bytes.put_i32(-1);
    bytes.put_i32(0);
    bytes.freeze()
}

/// A member as its client knows it.
struct Member {
    group: &'static str,
    protocol_type: &'static str,
    instance: Option<&'static str>,
    subscription: Bytes,
    id: String,
    generation: i32,
}

impl Member {
    fn consumer(group: &'static str, topics: &[&str]) -> Member {
        Member {
            group,
            protocol_type: "consumer",
            instance: None,
            subscription: subscription(topics),
            id: String::new(),
            generation: -1,
        }
    }

    fn join_request(&self, version: i16) -> JoinGroupRequest {
        let request = JoinGroupRequest::default()
            .with_group_id(group_id(self.group))
            .with_session_timeout_ms(30_000)
            .with_member_id(text(&self.id))
            .with_protocol_type(text(self.protocol_type))
            .with_protocols(vec![
                JoinGroupRequestProtocol::default()
                    .with_name(text("range"))
                    .with_metadata(self.subscription.clone()),
            ]);
        let request = match version {
            0 => request,
            _ => request.with_rebalance_timeout_ms(30_000),
        };
        match version {
            5.. => request.with_group_instance_id(self.instance.map(text)),
            _ => request,
        }
    }

    /// JoinGroup, and again with the member id where that comes first (KIP-394).
    async fn join(&mut self, client: &mut RawClient, version: i16) -> JoinGroupResponse {
        let mut response = client.send(version, &self.join_request(version)).await;
        if error_code(response.error_code) == ErrorCode::MemberIdRequired {
            self.id = response.member_id.to_string();
            response = client.send(version, &self.join_request(version)).await;
        }
        assert_eq!(response.error_code, 0);
        self.id = response.member_id.to_string();
        self.generation = response.generation_id;
        response
    }

    fn sync_request(&self, version: i16, assignment: &'static [u8]) -> SyncGroupRequest {
        let assignments = match assignment {
            [] => Vec::new(),
            bytes => vec![
                SyncGroupRequestAssignment::default()
                    .with_member_id(text(&self.id))
                    .with_assignment(Bytes::from_static(bytes)),
            ],
        };
        let request = SyncGroupRequest::default()
            .with_group_id(group_id(self.group))
            .with_generation_id(self.generation)
            .with_member_id(text(&self.id))
            .with_assignments(assignments);
        let request = match version {
            3.. => request.with_group_instance_id(self.instance.map(text)),
            _ => request,
        };
        match version {
            5.. => request
                .with_protocol_type(Some(text(self.protocol_type)))
                .with_protocol_name(Some(text("range"))),
            _ => request,
        }
    }

    async fn sync(&self, client: &mut RawClient, version: i16) -> SyncGroupResponse {
        client
            .send(version, &self.sync_request(version, b"mine"))
            .await
    }

    async fn heartbeat(&self, client: &mut RawClient, version: i16) -> ErrorCode {
        let request = HeartbeatRequest::default()
            .with_group_id(group_id(self.group))
            .with_generation_id(self.generation)
            .with_member_id(text(&self.id));
        let request = match version {
            3.. => request.with_group_instance_id(self.instance.map(text)),
            _ => request,
        };
        error_code(client.send(version, &request).await.error_code)
    }
}

/// LeaveGroup v3 and later of (member id, instance id) each: the codes.
async fn leave(
    client: &mut RawClient,
    version: i16,
    group: &str,
    members: &[(&str, Option<&str>)],
) -> Vec<ErrorCode> {
    let members = members
        .iter()
        .map(|(id, instance)| {
            let member = MemberIdentity::default()
                .with_member_id(text(id))
                .with_group_instance_id(instance.map(text));
            match version {
                5.. => member.with_reason(Some(text("a test"))),
                _ => member,
            }
        })
        .collect();
    let request = LeaveGroupRequest::default()
        .with_group_id(group_id(group))
        .with_members(members);
    let response = client.send(version, &request).await;
    assert_eq!(response.error_code, 0);
    let codes = response.members.iter().map(|m| error_code(m.error_code));
    codes.collect()
}

async fn describe(client: &mut RawClient, version: i16, ids: &[&str]) -> DescribeGroupsResponse {
    let ids = ids.iter().map(|id| group_id(id)).collect();
    let request = DescribeGroupsRequest::default()
        .with_groups(ids)
        .with_include_authorized_operations(version >= 3);
    client.send(version, &request).await
}

async fn delete(client: &mut RawClient, version: i16, ids: &[&str]) -> Vec<ErrorCode> {
    let ids = ids.iter().map(|id| group_id(id)).collect();
    let request = DeleteGroupsRequest::default().with_groups_names(ids);
    let response = client.send(version, &request).await;
    let codes = response.results.iter().map(|r| error_code(r.error_code));
    codes.collect()
}

/// OffsetDelete of (topic, partition) each: their codes, or the error of the whole.
async fn delete_offsets(
    client: &mut RawClient,
    group: &str,
    partitions: &[(&str, i32)],
) -> Result<Vec<ErrorCode>, ErrorCode> {
    let topics = partitions
        .iter()
        .map(|(topic, partition)| {
            OffsetDeleteRequestTopic::default()
                .with_name(topic_name(topic))
                .with_partitions(vec![
                    OffsetDeleteRequestPartition::default().with_partition_index(*partition),
                ])
        })
        .collect();
    let request = OffsetDeleteRequest::default()
        .with_group_id(group_id(group))
        .with_topics(topics);
    let response = client.send(0, &request).await;
    match error_code(response.error_code) {
        ErrorCode::None => Ok(response
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|p| error_code(p.error_code))
            .collect()),
        error => {
            assert!(response.topics.is_empty());
            Err(error)
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_lives_through_every_version() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    for version in 0..=9 {
        let mut member = Member::consumer("g", &["t"]);
        let joined = member.join(&mut client, version).await;
        assert_eq!(joined.leader, joined.member_id, "v{version}");
        assert_eq!(joined.protocol_name.as_deref(), Some("range"));
        let protocol_type = (version >= 7).then_some("consumer");
        assert_eq!(joined.protocol_type.as_deref(), protocol_type);
        assert_eq!(joined.members.len(), 1, "its leader is told everyone");
        assert!(!joined.skip_assignment);

        let sync_version = version.min(5);
        let synced = member.sync(&mut client, sync_version).await;
        assert_eq!(error_code(synced.error_code), OK, "v{version}");
        assert_eq!(&synced.assignment[..], b"mine");
        let protocol_type = (sync_version >= 5).then_some("consumer");
        assert_eq!(synced.protocol_type.as_deref(), protocol_type);

        let heartbeat = member.heartbeat(&mut client, version.min(4)).await;
        assert_eq!(heartbeat, OK);
        if version < 3 {
            let request = LeaveGroupRequest::default()
                .with_group_id(group_id("g"))
                .with_member_id(text(&member.id));
            assert_eq!(client.send(version, &request).await.error_code, 0);
        } else {
            let members = [("nobody", None), (member.id.as_str(), None)];
            let codes = leave(&mut client, version.min(5), "g", &members).await;
            assert_eq!(codes, [ErrorCode::UnknownMemberId, OK]);
        }
        let heartbeat = member.heartbeat(&mut client, 4).await;
        assert_eq!(heartbeat, ErrorCode::UnknownMemberId);
    }
}

/// KIP-559: a member that speaks of another protocol than the group's is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_names_the_protocol_that_was_chosen() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let mut member = Member::consumer("g", &["t"]);
    member.join(&mut client, 9).await;
    let right = member.sync_request(5, b"mine");
    for wrong in [
        right.clone().with_protocol_name(Some(text("sticky"))),
        right.clone().with_protocol_type(Some(text("connect"))),
        right.clone().with_protocol_name(None),
        right.clone().with_protocol_type(None),
    ] {
        let refused = client.send(5, &wrong).await;
        let error = error_code(refused.error_code);
        assert_eq!(error, ErrorCode::InconsistentGroupProtocol);
    }
    assert_eq!(client.send(5, &right).await.error_code, 0);
}

/// KIP-345, KIP-814: who comes back under its instance id goes on where it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_leader_that_comes_back_keeps_the_assignment() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let mut first = Member {
        instance: Some("i1"),
        ..Member::consumer("g", &["t"])
    };
    first.join(&mut client, 9).await;
    first.sync(&mut client, 5).await;
    for version in [8, 9] {
        let former = first.id.clone();
        let mut again = Member {
            instance: Some("i1"),
            ..Member::consumer("g", &["t"])
        };
        let joined = again.join(&mut client, version).await;
        assert_eq!(joined.generation_id, first.generation, "no rebalance");
        assert_ne!(joined.member_id.to_string(), former);
        assert_eq!(joined.skip_assignment, version >= 9);
        assert_eq!(joined.members.len(), usize::from(version >= 9));
        let synced = client.send(5, &again.sync_request(5, b"")).await;
        assert_eq!(&synced.assignment[..], b"mine");
        let fenced = Member {
            id: former,
            ..Member {
                instance: Some("i1"),
                generation: first.generation,
                ..Member::consumer("g", &[])
            }
        };
        let heartbeat = fenced.heartbeat(&mut client, 4).await;
        assert_eq!(heartbeat, ErrorCode::FencedInstanceId);
        first = again;
    }
    // An administrator removes it by its instance id alone.
    let codes = leave(&mut client, 5, "g", &[("", Some("i2")), ("", Some("i1"))]).await;
    assert_eq!(codes, [ErrorCode::UnknownMemberId, OK]);
    let described = describe(&mut client, 6, &["g"]).await;
    assert_eq!(&*described.groups[0].group_state, "Empty");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_listed_by_state_and_type() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    client
        .commit_offsets("offsets only", &[("t", 0, 5)])
        .await
        .unwrap();
    let mut member = Member::consumer("stable", &["t"]);
    member.join(&mut client, 9).await;
    member.sync(&mut client, 5).await;
    let mut waits = Member::consumer("waits", &["t"]);
    waits.join(&mut client, 9).await;

    let all = ["offsets only", "stable", "waits"];
    let cases: [(&[&str], &[&str], &[&str]); 8] = [
        (&[], &[], &all),
        (&["stable"], &[], &["stable"]),
        (&["Empty", "STABLE"], &[], &["offsets only", "stable"]),
        (&["CompletingRebalance"], &[], &["waits"]),
        (&["bogus"], &[], &[]),
        (&[], &["classic"], &all),
        (&["Stable"], &["CLASSIC", "consumer"], &["stable"]),
        (&[], &["consumer"], &[]),
    ];
    for (states, types, expected) in cases {
        for version in 0..=5 {
            if (version < 4 && !states.is_empty()) || (version < 5 && !types.is_empty()) {
                continue;
            }
            let filter = |words: &[&str]| words.iter().map(|word| text(word)).collect();
            let request = ListGroupsRequest::default()
                .with_states_filter(filter(states))
                .with_types_filter(filter(types));
            let listed = client.send(version, &request).await.groups;
            let ids: Vec<&str> = listed.iter().map(|g| &**g.group_id).collect();
            assert_eq!(ids, expected, "v{version} {states:?} {types:?}");
            for group in &listed {
                let consumers = &**group.group_id != "offsets only";
                let protocol_type = if consumers { "consumer" } else { "" };
                assert_eq!(&*group.protocol_type, protocol_type);
                assert_eq!(group.group_state.is_empty(), version < 4);
                let group_type = if version >= 5 { "classic" } else { "" };
                assert_eq!(&*group.group_type, group_type);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_not_there_is_an_error_from_version_6_on() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let mut member = Member::consumer("g", &["t"]);
    member.join(&mut client, 9).await;
    member.sync(&mut client, 5).await;
    for version in 0..=6 {
        let groups = describe(&mut client, version, &["g", "missing"])
            .await
            .groups;
        let (here, missing) = (&groups[0], &groups[1]);
        assert_eq!(here.error_code, 0);
        assert_eq!(&*here.group_state, "Stable");
        assert_eq!(&here.members[0].member_assignment[..], b"mine");
        let operations = if version >= 3 {
            0b1101_0100_1000
        } else {
            i32::MIN
        };
        assert_eq!(here.authorized_operations, operations, "v{version}");
        assert_eq!(&*missing.group_state, "Dead");
        if version < 6 {
            assert_eq!(missing.error_code, 0);
        } else {
            assert_eq!(error_code(missing.error_code), ErrorCode::GroupIdNotFound);
            let message = missing.error_message.as_deref();
            assert_eq!(message, Some("Group missing not found."));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_without_members_can_be_deleted() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let mut member = Member::consumer("busy", &["t"]);
    member.join(&mut client, 9).await;
    member.sync(&mut client, 5).await;
    for version in 0..=2 {
        client.commit_offsets("g", &[("t", 0, 5)]).await.unwrap();
        let codes = delete(&mut client, version, &["busy", "g", "missing", "g", ""]).await;
        let missing = ErrorCode::GroupIdNotFound;
        let expected = [ErrorCode::NonEmptyGroup, OK, missing, missing, missing];
        assert_eq!(codes, expected, "v{version}");
        assert_eq!(client.committed_offset("g", "t", 0, false).await, Ok(-1));
    }
    // Its members gone, so can the other; and both stay deleted.
    let members = [(member.id.as_str(), None)];
    leave(&mut client, 5, "busy", &members).await;
    assert_eq!(delete(&mut client, 2, &["busy"]).await, [OK]);
    let broker = broker.crash(1).await.start().await;
    let mut client = broker.client().await;
    for group in describe(&mut client, 5, &["busy", "g"]).await.groups {
        assert_eq!(&*group.group_state, "Dead");
    }
}

/// KIP-496.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_are_deleted_where_nobody_reads() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 3).await;
    client.create_topic("u", 1).await;
    let unknown = ErrorCode::UnknownTopicOrPartition;
    let subscribed = ErrorCode::GroupSubscribedToTopic;

    let offsets = [("t", 0, 5), ("t", 2, 6), ("u", 0, 7)];
    client.commit_offsets("simple", &offsets).await.unwrap();
    let asked = [("t", 0), ("t", 1), ("t", 9), ("no", 0)];
    let codes = delete_offsets(&mut client, "simple", &asked).await;
    assert_eq!(codes, Ok(vec![OK, OK, unknown, unknown]));
    let mut left = Vec::new();
    for (topic, partition, _) in offsets {
        left.push(
            client
                .committed_offset("simple", topic, partition, false)
                .await,
        );
    }
    assert_eq!(left, [Ok(-1), Ok(6), Ok(7)]);

    for (group, error) in [
        ("", ErrorCode::InvalidGroupId),
        ("missing", ErrorCode::GroupIdNotFound),
    ] {
        for asked in [&[("t", 0)][..], &[("no", 0)]] {
            let refused = delete_offsets(&mut client, group, asked).await;
            assert_eq!(refused, Err(error), "{group:?}");
        }
    }

    // Consumers: what they subscribe to stays. Before they agreed on a protocol it may be anything.
    client
        .commit_offsets("g", &[("t", 0, 5), ("u", 0, 7)])
        .await
        .unwrap();
    let mut member = Member::consumer("g", &["t"]);
    member.join(&mut client, 9).await;
    member.sync(&mut client, 5).await;
    let codes = delete_offsets(&mut client, "g", &[("t", 0), ("u", 0)]).await;
    assert_eq!(codes, Ok(vec![subscribed, OK]));
    assert_eq!(client.committed_offset("g", "t", 0, false).await, Ok(5));
    assert_eq!(client.committed_offset("g", "u", 0, false).await, Ok(-1));
    // Also after a restart, from what is stored of the members.
    let broker = broker.restart().await;
    let mut client = broker.client().await;
    let codes = delete_offsets(&mut client, "g", &[("t", 0), ("u", 0)]).await;
    assert_eq!(codes, Ok(vec![subscribed, OK]));
    leave(&mut client, 5, "g", &[(member.id.as_str(), None)]).await;
    let codes = delete_offsets(&mut client, "g", &[("t", 0)]).await;
    assert_eq!(codes, Ok(vec![OK]));

    // What others read is not known.
    let mut worker = Member {
        protocol_type: "connect",
        subscription: Bytes::from_static(b"\xff"),
        ..Member::consumer("workers", &[])
    };
    worker.join(&mut client, 9).await;
    let refused = delete_offsets(&mut client, "workers", &[("t", 0)]).await;
    assert_eq!(refused, Err(ErrorCode::NonEmptyGroup));
    // Consumers whose metadata cannot be read may read anything.
    let mut garbled = Member {
        subscription: Bytes::from_static(b"\0\0\x7f\xff\xff\xff"),
        ..Member::consumer("garbled", &[])
    };
    garbled.join(&mut client, 9).await;
    let codes = delete_offsets(&mut client, "garbled", &[("u", 0)]).await;
    assert_eq!(codes, Ok(vec![subscribed]));
}

/// An offset that waits for its transaction goes too: the commit does not bring it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pending_offset_that_is_deleted_stays_deleted() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 2).await;
    let producer = TxnProducer::init(&mut client, "tx").await;
    producer
        .send_offsets(&mut client, "g", &[("t", 0, 5), ("t", 1, 6)])
        .await
        .unwrap();
    let codes = delete_offsets(&mut client, "g", &[("t", 0)]).await;
    assert_eq!(codes, Ok(vec![OK]));
    assert_eq!(client.committed_offset("g", "t", 0, true).await, Ok(-1));
    producer.end(&mut client, true).await.unwrap();
    assert_eq!(client.committed_offset("g", "t", 0, true).await, Ok(-1));
    assert_eq!(client.committed_offset("g", "t", 1, true).await, Ok(6));
}
