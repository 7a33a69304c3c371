//! A coordinator with a log of its own and a clock that moves when it is told to.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidemark_group_coordinator::{
    Ctx, Effect, GroupConfig, GroupRecord, GroupReply, GroupReplyToken, GroupState, Groups,
    HeartbeatRequest, JoinReply, JoinRequest, LeaveMember, LeaveReply, LeaveRequest,
    OffsetCommitRequest, OffsetResult, OffsetToCommit, SyncReply, SyncRequest,
    TxnOffsetCommitRequest,
};
use tidemark_types::{ErrorCode, MonoTime, ProducerId};

pub const GROUP: &str = "g";
pub const SESSION_MS: i32 = 10_000;
pub const REBALANCE_MS: i32 = 60_000;

#[derive(Clone, Debug)]
pub enum Entry {
    Record(GroupRecord, Option<ProducerId>),
    Marker(ProducerId, bool),
}

pub struct Coordinator {
    pub groups: Groups,
    pub now_ms: u64,
    config: GroupConfig,
    next_token: u64,
    next_suffix: u64,
    /// The log of every partition of `__consumer_offsets`; an entry's offset is its place.
    log: BTreeMap<i32, Vec<Entry>>,
    waiting: BTreeSet<GroupReplyToken>,
    replies: BTreeMap<GroupReplyToken, GroupReply>,
}

/// A JoinGroup v5 of a consumer that supports `range`.
pub fn join_of(client_id: &str, member_id: &str) -> JoinRequest {
    JoinRequest {
        group_id: GROUP.to_owned(),
        member_id: member_id.to_owned(),
        group_instance_id: None,
        client_id: client_id.to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: REBALANCE_MS,
        protocol_type: "consumer".to_owned(),
        protocols: vec![(
            "range".to_owned(),
            Bytes::from(format!("topics of {client_id}")),
        )],
        require_known_member_id: true,
        supports_skip_assignment: false,
        reason: None,
    }
}

pub fn static_join_of(instance_id: &str, member_id: &str) -> JoinRequest {
    JoinRequest {
        group_instance_id: Some(instance_id.to_owned()),
        ..join_of(instance_id, member_id)
    }
}

pub fn offset(topic: &str, partition: i32, offset: i64) -> OffsetToCommit {
    OffsetToCommit {
        topic: topic.to_owned(),
        partition,
        offset,
        leader_epoch: 3,
        metadata: None,
    }
}

impl Coordinator {
    pub fn new() -> Coordinator {
        Coordinator::with(GroupConfig::default())
    }

    pub fn with(config: GroupConfig) -> Coordinator {
        Coordinator {
            groups: Groups::new(config.clone()),
            now_ms: 1_000,
            config,
            next_token: 0,
            next_suffix: 0,
            log: BTreeMap::new(),
            waiting: BTreeSet::new(),
            replies: BTreeMap::new(),
        }
    }

    pub fn now(&self) -> MonoTime {
        MonoTime::from_ms(self.now_ms)
    }

    pub fn wall_ms(&self) -> i64 {
        1_700_000_000_000 + self.now_ms as i64
    }

    fn token(&mut self) -> GroupReplyToken {
        self.next_token += 1;
        let token = GroupReplyToken(self.next_token);
        self.waiting.insert(token);
        token
    }

    /// What the owner does with effects, and what must be true after them.
    pub fn run(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Append {
                    partition, records, ..
                } => {
                    for record in records {
                        assert_eq!(partition, Groups::partition_of(record.group_id()));
                        self.append(record, None);
                    }
                }
                Effect::Reply(token, reply) => {
                    assert!(self.waiting.remove(&token), "{token:?} was answered before");
                    self.replies.insert(token, reply);
                }
            }
        }
        self.check();
    }

    pub fn check(&self) {
        self.groups.check().unwrap();
        let parked: BTreeSet<GroupReplyToken> = self.groups.parked().into_iter().collect();
        assert_eq!(parked, self.waiting, "neither answered nor parked");
    }

    pub fn append(&mut self, record: GroupRecord, producer: Option<ProducerId>) {
        let decoded = GroupRecord::decode(&record.encode_key(), record.encode_value().as_deref());
        assert_eq!(decoded.as_ref(), Ok(&record));
        let partition = Groups::partition_of(record.group_id());
        let log = self.log.entry(partition).or_default();
        self.groups
            .apply(partition, &record, log.len() as i64, producer);
        log.push(Entry::Record(record, producer));
    }

    pub fn end_transaction(&mut self, producer: i64, commit: bool) {
        let producer = ProducerId(producer);
        for (&partition, log) in &mut self.log {
            if self.groups.has_pending_offsets(partition, producer) {
                self.groups.apply_marker(partition, producer, commit);
                log.push(Entry::Marker(producer, commit));
            }
        }
        self.check();
    }

    pub fn delete_topic(&mut self, topic: &str) {
        for (_, records) in self.groups.records_for_deleted_topic(topic) {
            for record in records {
                self.append(record, None);
            }
        }
        self.check();
    }

    pub fn delete_group(&mut self, group_id: &str) -> ErrorCode {
        match self.groups.decide_delete(group_id) {
            Err(error) => error,
            Ok(records) => {
                for record in records {
                    self.append(record, None);
                }
                self.check();
                ErrorCode::None
            }
        }
    }

    /// Kill and start again: the soft state is gone, the log is replayed.
    pub fn restart(&mut self) {
        let replayed = self.replayed();
        assert!(
            replayed.durable_eq(&self.groups),
            "replay differs from the live state"
        );
        assert!(self.rebuilt_from_checkpoint().durable_eq(&self.groups));
        self.groups = replayed;
        self.waiting.clear();
        let (now, wall_ms) = (self.now(), self.wall_ms());
        self.groups.restore_after_replay(now, wall_ms);
        self.check();
    }

    fn replayed(&self) -> Groups {
        let mut groups = Groups::new(self.config.clone());
        for (&partition, log) in &self.log {
            for (log_offset, entry) in log.iter().enumerate() {
                match entry {
                    Entry::Record(record, producer) => {
                        groups.apply(partition, record, log_offset as i64, *producer);
                    }
                    Entry::Marker(producer, commit) => {
                        groups.apply_marker(partition, *producer, *commit);
                    }
                }
            }
        }
        groups
    }

    pub fn rebuilt_from_checkpoint(&self) -> Groups {
        let mut groups = Groups::new(self.config.clone());
        for partition in self.groups.partitions() {
            for (record, log_offset, producer) in self.groups.records_of_partition(partition) {
                groups.apply(partition, &record, log_offset, producer);
            }
        }
        groups
    }

    /// Lets time pass, acting on each deadline at its moment.
    pub fn advance(&mut self, ms: u64) {
        let end = MonoTime::from_ms(self.now_ms + ms);
        while let Some(deadline) = self.groups.next_deadline().filter(|d| *d <= end) {
            self.now_ms = self.now_ms.max(deadline.as_ms());
            let effects = self.groups.expire(deadline.max(self.now()), self.wall_ms());
            self.run(effects);
        }
        self.now_ms = end.as_ms();
    }

    // Requests that may wait: the token is answered by `joined`, `synced`.

    pub fn join(&mut self, request: JoinRequest) -> GroupReplyToken {
        let token = self.token();
        let (now, wall_ms) = (self.now(), self.wall_ms());
        let next_suffix = &mut self.next_suffix;
        let mut suffix = || {
            *next_suffix += 1;
            next_suffix.to_string()
        };
        let mut ctx = Ctx {
            now,
            wall_ms,
            member_id_suffix: &mut suffix,
        };
        let effects = self.groups.join(token, request, &mut ctx);
        self.run(effects);
        token
    }

    pub fn sync_request(&mut self, request: SyncRequest) -> GroupReplyToken {
        let token = self.token();
        let effects = self.groups.sync(token, request, self.now(), self.wall_ms());
        self.run(effects);
        token
    }

    pub fn sync(
        &mut self,
        member_id: &str,
        generation_id: i32,
        assignments: &[(&str, &'static str)],
    ) -> GroupReplyToken {
        let assignments = assignments.iter();
        self.sync_request(SyncRequest {
            assignments: assignments
                .map(|(id, bytes)| ((*id).to_owned(), Bytes::from_static(bytes.as_bytes())))
                .collect(),
            ..self.sync_request_of(member_id, generation_id)
        })
    }

    /// A SyncGroup without assignments.
    pub fn sync_request_of(&self, member_id: &str, generation_id: i32) -> SyncRequest {
        SyncRequest {
            group_id: GROUP.to_owned(),
            generation_id,
            member_id: member_id.to_owned(),
            group_instance_id: None,
            protocol_type: Some("consumer".to_owned()),
            protocol_name: Some("range".to_owned()),
            assignments: Vec::new(),
        }
    }

    #[track_caller]
    pub fn joined(&self, token: GroupReplyToken) -> JoinReply {
        match self.replies.get(&token) {
            Some(GroupReply::Join(reply)) => reply.clone(),
            other => panic!("no JoinGroup answer but {other:?}"),
        }
    }

    #[track_caller]
    pub fn synced(&self, token: GroupReplyToken) -> SyncReply {
        match self.replies.get(&token) {
            Some(GroupReply::Sync(reply)) => reply.clone(),
            other => panic!("no SyncGroup answer but {other:?}"),
        }
    }

    pub fn is_parked(&self, token: GroupReplyToken) -> bool {
        self.waiting.contains(&token)
    }

    // Requests that are answered at once.

    pub fn heartbeat_request(&mut self, request: HeartbeatRequest) -> ErrorCode {
        let token = self.token();
        let effects = self
            .groups
            .heartbeat(token, request, self.now(), self.wall_ms());
        self.run(effects);
        match self.replies.get(&token) {
            Some(GroupReply::Heartbeat(error)) => *error,
            other => panic!("no Heartbeat answer but {other:?}"),
        }
    }

    pub fn heartbeat(&mut self, member_id: &str, generation_id: i32) -> ErrorCode {
        self.heartbeat_request(HeartbeatRequest {
            group_id: GROUP.to_owned(),
            generation_id,
            member_id: member_id.to_owned(),
            group_instance_id: None,
        })
    }

    pub fn leave_members(&mut self, members: Vec<LeaveMember>) -> LeaveReply {
        self.leave_request(LeaveRequest {
            group_id: GROUP.to_owned(),
            members,
        })
    }

    pub fn leave_request(&mut self, request: LeaveRequest) -> LeaveReply {
        let token = self.token();
        let effects = self
            .groups
            .leave(token, request, self.now(), self.wall_ms());
        self.run(effects);
        match self.replies.get(&token) {
            Some(GroupReply::Leave(reply)) => reply.clone(),
            other => panic!("no LeaveGroup answer but {other:?}"),
        }
    }

    pub fn leave(&mut self, member_id: &str) -> ErrorCode {
        self.leave_members(vec![LeaveMember {
            member_id: member_id.to_owned(),
            group_instance_id: None,
            reason: None,
        }])
        .single_error()
    }

    pub fn commit_request(&mut self, request: OffsetCommitRequest) -> Vec<OffsetResult> {
        let decision = self
            .groups
            .decide_offset_commit(request, self.now(), self.wall_ms());
        for record in decision.records {
            self.append(record, None);
        }
        self.check();
        decision.results
    }

    /// OffsetCommit of one offset.
    pub fn commit(&mut self, member_id: &str, generation_id: i32, at: OffsetToCommit) -> ErrorCode {
        let results = self.commit_request(OffsetCommitRequest {
            group_id: GROUP.to_owned(),
            generation_id,
            member_id: member_id.to_owned(),
            group_instance_id: None,
            offsets: vec![at],
            retention_time_ms: -1,
            reports_missing_group: false,
        });
        results[0].error
    }

    pub fn txn_commit_request(
        &mut self,
        producer: i64,
        request: TxnOffsetCommitRequest,
    ) -> Vec<OffsetResult> {
        let decision = self
            .groups
            .decide_txn_offset_commit(request, self.wall_ms());
        for record in decision.records {
            self.append(record, Some(ProducerId(producer)));
        }
        self.check();
        decision.results
    }

    /// TxnOffsetCommit of one offset.
    pub fn txn_commit(
        &mut self,
        producer: i64,
        member_id: &str,
        generation_id: i32,
        at: OffsetToCommit,
    ) -> ErrorCode {
        let request = TxnOffsetCommitRequest {
            group_id: GROUP.to_owned(),
            generation_id,
            member_id: member_id.to_owned(),
            group_instance_id: None,
            offsets: vec![at],
        };
        self.txn_commit_request(producer, request)[0].error
    }

    /// (offset, error) of one partition.
    pub fn fetch(&self, topic: &str, partition: i32, require_stable: bool) -> (i64, ErrorCode) {
        let asked = [(topic.to_owned(), vec![partition])];
        let answer = self
            .groups
            .offset_fetch(GROUP, Some(&asked), require_stable);
        (answer[0].offset, answer[0].error)
    }

    pub fn state(&self) -> GroupState {
        self.groups.describe(GROUP).state
    }

    // What a consumer does to be in the group.

    /// Asks for a member id (KIP-394).
    pub fn new_member_id(&mut self, client_id: &str) -> String {
        let token = self.join(join_of(client_id, ""));
        let reply = self.joined(token);
        assert_eq!(reply.error, ErrorCode::MemberIdRequired);
        assert_eq!(reply.generation_id, -1);
        reply.member_id
    }

    /// Joins with an id that was just given.
    pub fn start_joining(&mut self, client_id: &str) -> (String, GroupReplyToken) {
        let member_id = self.new_member_id(client_id);
        let token = self.join(join_of(client_id, &member_id));
        (member_id, token)
    }

    /// A stable group of one member, "a", at generation 1.
    pub fn stable_group_of_one(&mut self) -> String {
        let (a, join) = self.start_joining("a");
        self.advance(3_000);
        assert_eq!(self.joined(join).generation_id, 1);
        let sync = self.sync(&a, 1, &[(&a, "all")]);
        assert_eq!(self.synced(sync).error, ErrorCode::None);
        a
    }

    /// A stable group of two members at generation 1; "a" leads.
    pub fn stable_group_of_two(&mut self) -> (String, String) {
        let (a, join_a) = self.start_joining("a");
        let (b, join_b) = self.start_joining("b");
        self.advance(6_000);
        assert_eq!(self.joined(join_a).leader, a);
        assert_eq!(self.joined(join_b).generation_id, 1);
        let sync_b = self.sync(&b, 1, &[]);
        let sync_a = self.sync(&a, 1, &[(&a, "half"), (&b, "rest")]);
        assert_eq!(self.synced(sync_a).assignment, "half");
        assert_eq!(self.synced(sync_b).assignment, "rest");
        assert_eq!(self.state(), GroupState::Stable);
        (a, b)
    }
}
