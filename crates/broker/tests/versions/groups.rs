//! Groups of the classic protocol: membership and administration.

use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, GroupId, LeaveGroupRequest, ListGroupsRequest,
};
use tidemark_testkit::requests::text;
use tidemark_types::ErrorCode;

use crate::World;
use crate::support::code;
use crate::support::member::{self, Member};

pub fn group_id(group: &str) -> GroupId {
    GroupId(text(group))
}

pub async fn join_group(world: &mut World, version: i16) {
    let group = world.name("g");
    let mut member_id = String::new();
    if version >= 4 {
        // The id comes first (KIP-394).
        let asked = world
            .client
            .send(version, &member::join(version, &group, "", b"m"))
            .await;
        assert_eq!(code(asked.error_code), ErrorCode::MemberIdRequired);
        assert_eq!(asked.generation_id, -1);
        member_id = asked.member_id.to_string();
        assert!(member_id.starts_with("testkit-"), "{member_id}");
    }
    let request = member::join(version, &group, &member_id, b"m");
    let joined = world.client.send(version, &request).await;
    assert_eq!(code(joined.error_code), ErrorCode::None);
    assert_eq!(joined.generation_id, 1);
    assert!(joined.member_id.starts_with("testkit-"));
    assert_eq!(joined.leader, joined.member_id);
    assert_eq!(joined.protocol_name.as_deref(), Some("range"));
    let protocol_type = (version >= 7).then_some("consumer");
    assert_eq!(joined.protocol_type.as_deref(), protocol_type);
    assert_eq!(joined.members.len(), 1);
    assert_eq!(joined.members[0].member_id, joined.member_id);
    assert_eq!(&*joined.members[0].metadata, b"m");
    assert!(!joined.skip_assignment);

    if version >= 5 {
        let group = world.name("static");
        let request =
            member::join(version, &group, "", b"m").with_group_instance_id(Some(text("i1")));
        let joined = world.client.send(version, &request).await;
        assert_eq!(code(joined.error_code), ErrorCode::None);
        let instance = joined.members[0].group_instance_id.as_deref();
        assert_eq!(instance, Some("i1"));
    }

    for (what, group, session_timeout_ms, member_id, want) in [
        ("no group", "", 10_000, "", ErrorCode::InvalidGroupId),
        (
            "too short",
            group.as_str(),
            1,
            "",
            ErrorCode::InvalidSessionTimeout,
        ),
        (
            "too long",
            group.as_str(),
            i32::MAX,
            "",
            ErrorCode::InvalidSessionTimeout,
        ),
        (
            "a stranger",
            group.as_str(),
            10_000,
            "zzz",
            ErrorCode::UnknownMemberId,
        ),
    ] {
        let mut request = member::join(version, group, member_id, b"m");
        request.session_timeout_ms = session_timeout_ms;
        let refused = world.client.send(version, &request).await;
        assert_eq!(code(refused.error_code), want, "{what}");
        assert_eq!(refused.generation_id, -1, "{what}");
    }
    let mut other = member::join(version, &group, "", b"m");
    other.protocol_type = text("connect");
    let refused = world.client.send(version, &other).await;
    assert_eq!(
        code(refused.error_code),
        ErrorCode::InconsistentGroupProtocol
    );
}

pub async fn sync_group(world: &mut World, version: i16) {
    let group = world.name("g");
    let member = Member::alone(&mut world.client, &group).await;
    let (id, generation) = (&*member.member_id, member.generation);
    for (member_id, generation, want) in [
        (id, generation, ErrorCode::None),
        (id, generation - 1, ErrorCode::IllegalGeneration),
        ("zzz", generation, ErrorCode::UnknownMemberId),
    ] {
        // A member that asks again gets what it was handed.
        let request = member::sync(&group, generation, member_id, None);
        let request = match version {
            5.. => request
                .with_protocol_type(Some(text("consumer")))
                .with_protocol_name(Some(text("range"))),
            _ => request,
        };
        let synced = world.client.send(version, &request).await;
        assert_eq!(code(synced.error_code), want, "{member_id} of {generation}");
        let assignment: &[u8] = if want.is_err() { b"" } else { b"all" };
        assert_eq!(&*synced.assignment, assignment);
        if version >= 5 && !want.is_err() {
            assert_eq!(synced.protocol_type.as_deref(), Some("consumer"));
            assert_eq!(synced.protocol_name.as_deref(), Some("range"));
        }
    }
    if version >= 5 {
        let request = member::sync(&group, generation, id, None)
            .with_protocol_type(Some(text("consumer")))
            .with_protocol_name(Some(text("sticky")));
        let refused = world.client.send(version, &request).await;
        assert_eq!(
            code(refused.error_code),
            ErrorCode::InconsistentGroupProtocol
        );
    }
}

pub async fn heartbeat(world: &mut World, version: i16) {
    let group = world.name("g");
    let member = Member::alone(&mut world.client, &group).await;
    let (id, generation) = (&*member.member_id, member.generation);
    for (group, member_id, generation, want) in [
        (&*group, id, generation, ErrorCode::None),
        (&*group, id, generation - 1, ErrorCode::IllegalGeneration),
        (&*group, "zzz", generation, ErrorCode::UnknownMemberId),
        ("nobody's", id, generation, ErrorCode::UnknownMemberId),
    ] {
        let request = member::heartbeat(group, generation, member_id);
        let answer = world.client.send(version, &request).await;
        assert_eq!(code(answer.error_code), want, "{member_id} of {generation}");
    }
    if version >= 3 {
        let request =
            member::heartbeat(&group, generation, id).with_group_instance_id(Some(text("unknown")));
        let answer = world.client.send(version, &request).await;
        assert_eq!(code(answer.error_code), ErrorCode::UnknownMemberId);
    }
}

pub async fn leave_group(world: &mut World, version: i16) {
    let group = world.name("g");
    let member = Member::alone(&mut world.client, &group).await;
    let id = &*member.member_id;
    if version < 3 {
        for (member_id, want) in [
            ("zzz", ErrorCode::UnknownMemberId),
            (id, ErrorCode::None),
            (id, ErrorCode::UnknownMemberId),
        ] {
            let left = world
                .client
                .send(version, &member::leave(&group, member_id))
                .await;
            assert_eq!(code(left.error_code), want, "{member_id}");
        }
        return;
    }
    let members = [id, "zzz"].map(|id| {
        let member = MemberIdentity::default().with_member_id(text(id));
        match version {
            5.. => member.with_reason(Some(text("done"))),
            _ => member,
        }
    });
    let request = LeaveGroupRequest::default()
        .with_group_id(group_id(&group))
        .with_members(members.to_vec());
    let left = world.client.send(version, &request).await;
    assert_eq!(code(left.error_code), ErrorCode::None);
    let answers: Vec<(&str, ErrorCode)> = left
        .members
        .iter()
        .map(|m| (&*m.member_id, code(m.error_code)))
        .collect();
    assert_eq!(
        answers,
        [(id, ErrorCode::None), ("zzz", ErrorCode::UnknownMemberId)]
    );
}

pub async fn describe_groups(world: &mut World, version: i16) {
    let group = world.name("g");
    let member = Member::alone(&mut world.client, &group).await;
    let request =
        DescribeGroupsRequest::default().with_groups(vec![group_id(&group), group_id("nobody's")]);
    let response = world.client.send(version, &request).await;
    let answer = |group: &str| {
        let mut groups = response.groups.iter();
        groups
            .find(|g| **g.group_id == *group)
            .expect("every group is answered")
    };

    let found = answer(&group);
    assert_eq!(code(found.error_code), ErrorCode::None);
    assert_eq!(&*found.group_state, "Stable");
    assert_eq!(
        (&*found.protocol_type, &*found.protocol_data),
        ("consumer", "range")
    );
    if version >= 3 {
        assert_eq!(found.authorized_operations, i32::MIN, "not asked for");
    }
    assert_eq!(found.members.len(), 1);
    let described = &found.members[0];
    assert_eq!(*described.member_id, *member.member_id);
    assert_eq!(&*described.client_id, "testkit");
    assert_eq!(&*described.client_host, "/127.0.0.1");
    assert_eq!(described.group_instance_id, None);
    assert_eq!(
        (&*described.member_metadata, &*described.member_assignment),
        (&b"v0"[..], &b"all"[..])
    );

    let unknown = answer("nobody's");
    let want = match version {
        6.. => ErrorCode::GroupIdNotFound,
        _ => ErrorCode::None,
    };
    assert_eq!(code(unknown.error_code), want);
    assert_eq!(unknown.error_message.is_some(), version >= 6);
    assert_eq!((&*unknown.group_state, unknown.members.len()), ("Dead", 0));

    let nobody = DescribeGroupsRequest::default();
    assert!(world.client.send(version, &nobody).await.groups.is_empty());
}

pub async fn list_groups(world: &mut World, version: i16) {
    let topic = world.topic("t", 1).await;
    let (stable, empty) = (world.name("stable"), world.name("empty"));
    let _member = Member::alone(&mut world.client, &stable).await;
    let committed = world.client.commit_offsets(&empty, &[(&topic, 0, 1)]).await;
    assert_eq!(committed, Ok(()));
    let mut list = async |states: &[&str], types: &[&str]| {
        let request = ListGroupsRequest::default()
            .with_states_filter(states.iter().map(|s| text(s)).collect())
            .with_types_filter(types.iter().map(|t| text(t)).collect());
        let response = world.client.send(version, &request).await;
        assert_eq!(code(response.error_code), ErrorCode::None);
        let find = |group: &str| {
            let found = response.groups.iter().find(|g| **g.group_id == *group);
            found.map(|g| {
                let (state, kind) = (g.group_state.to_string(), g.group_type.to_string());
                (g.protocol_type.to_string(), state, kind)
            })
        };
        (find(&stable), find(&empty))
    };
    let line = |protocol: &str, state: &str| {
        let state = if version >= 4 { state } else { "" };
        let kind = if version >= 5 { "classic" } else { "" };
        Some((protocol.to_owned(), state.to_owned(), kind.to_owned()))
    };
    let (consumer, simple) = (line("consumer", "Stable"), line("", "Empty"));
    assert_eq!(list(&[], &[]).await, (consumer.clone(), simple.clone()));
    if version >= 4 {
        assert_eq!(list(&["Stable"], &[]).await, (consumer.clone(), None));
        assert_eq!(list(&["empty"], &[]).await, (None, simple.clone()));
        assert_eq!(
            list(&["Stable", "Empty"], &[]).await,
            (consumer.clone(), simple.clone())
        );
        assert_eq!(list(&["NoSuchState"], &[]).await, (None, None));
    }
    if version >= 5 {
        assert_eq!(list(&[], &["classic"]).await, (consumer, simple));
        assert_eq!(list(&[], &["consumer"]).await, (None, None));
    }
}

pub async fn delete_groups(world: &mut World, version: i16) {
    let topic = world.topic("t", 1).await;
    let (alive, empty) = (world.name("alive"), world.name("empty"));
    let _member = Member::alone(&mut world.client, &alive).await;
    let committed = world.client.commit_offsets(&empty, &[(&topic, 0, 1)]).await;
    assert_eq!(committed, Ok(()));
    let names = [&*alive, &*empty, "nobody's"].map(group_id).to_vec();
    let request = DeleteGroupsRequest::default().with_groups_names(names);
    let response = world.client.send(version, &request).await;
    for (group, want) in [
        (&*alive, ErrorCode::NonEmptyGroup),
        (&*empty, ErrorCode::None),
        ("nobody's", ErrorCode::GroupIdNotFound),
    ] {
        let found = response
            .results
            .iter()
            .find(|r| **r.group_id == *group)
            .unwrap();
        assert_eq!(code(found.error_code), want, "{group}");
    }
    let offset = world.client.committed_offset(&empty, &topic, 0, true).await;
    assert_eq!(offset, Ok(-1));
}
