//! `offsets.retention.minutes`, by Kafka's rules (KIP-211).

use bytes::Bytes;
use tidemark_group_coordinator::{GroupState, JoinRequest, OffsetsCursor};
use tidemark_types::ErrorCode;

use crate::coordinator::{Coordinator, join_of, offset};

const RETENTION_MS: u64 = 100_000;

impl Coordinator {
    /// Looks at everything, `looks` at a time. Returns how many looks it took.
    fn expire_offsets(&mut self, looks: usize, max_bytes: usize) -> usize {
        let mut cursor = OffsetsCursor::default();
        for n in 1.. {
            let retention_ms = RETENTION_MS as i64;
            let expired =
                self.groups
                    .expire_offsets(&cursor, looks, max_bytes, self.wall_ms(), retention_ms);
            for (_, records) in expired.records {
                records
                    .into_iter()
                    .for_each(|record| self.append(record, None));
            }
            self.check();
            match expired.next {
                Some(next) => assert_ne!(std::mem::replace(&mut cursor, next.clone()), next),
                None => return n,
            }
        }
        unreachable!("it ends")
    }

    /// Two at a time, which is the slowest way there is.
    fn expire(&mut self) {
        self.expire_offsets(3, 100);
    }

    fn pass_keeping(&mut self, member_id: &str, generation_id: i32, ms: u64) {
        for _ in 0..ms / 5_000 {
            self.advance(5_000);
            self.heartbeat(member_id, generation_id);
        }
    }

    /// A stable group of one consumer that reads these topics.
    fn consumer_of(&mut self, protocol_type: &str, topics: &[&str]) -> (String, i32) {
        let mut subscription = vec![0, 1];
        subscription.extend((topics.len() as i32).to_be_bytes());
        for topic in topics {
            subscription.extend((topic.len() as i16).to_be_bytes());
            subscription.extend(topic.as_bytes());
        }
        let join = self.join(JoinRequest {
            require_known_member_id: false,
            protocol_type: protocol_type.to_owned(),
            protocols: vec![("range".to_owned(), Bytes::from(subscription))],
            ..join_of("a", "")
        });
        self.advance(3_000);
        let joined = self.joined(join);
        assert_eq!(joined.error, ErrorCode::None);
        let mut request = self.sync_request_of(&joined.member_id, joined.generation_id);
        request.protocol_type = Some(protocol_type.to_owned());
        self.sync_request(request);
        assert_eq!(self.state(), GroupState::Stable);
        (joined.member_id, joined.generation_id)
    }
}

#[test]
fn offsets_of_an_empty_group_go_together_so_long_after_it_became_empty() {
    let mut t = Coordinator::new();
    let (a, generation) = t.consumer_of("consumer", &["t"]);
    for partition in 0..7 {
        t.commit(&a, generation, offset("t", partition, 1));
    }
    t.pass_keeping(&a, generation, 2 * RETENTION_MS);
    t.expire();
    assert_eq!(t.fetch("t", 0, false).0, 1, "it has a member");
    t.leave(&a);
    t.advance(RETENTION_MS - 1);
    t.restart();
    t.expire();
    assert_eq!(t.fetch("t", 6, false).0, 1);
    t.advance(1);
    t.expire();
    assert_eq!(t.fetch("t", 0, false).0, -1);
    // Whoever looks in several pieces takes the group with the next round.
    t.expire();
    assert_eq!(t.state(), GroupState::Dead);
    t.restart();
}

#[test]
fn an_empty_group_without_offsets_goes_at_once() {
    let mut t = Coordinator::new();
    let (a, _) = t.consumer_of("consumer", &["t"]);
    t.expire();
    assert_eq!(t.state(), GroupState::Stable);
    t.leave(&a);
    assert_eq!(t.state(), GroupState::Empty);
    t.expire();
    assert_eq!(t.state(), GroupState::Dead);
}

#[test]
fn in_a_stable_group_only_topics_that_nobody_reads_expire() {
    let mut t = Coordinator::new();
    let (a, generation) = t.consumer_of("consumer", &["t", "u"]);
    for topic in ["t", "u", "former"] {
        t.commit(&a, generation, offset(topic, 0, 1));
    }
    t.pass_keeping(&a, generation, RETENTION_MS - 5_000);
    t.expire();
    assert_eq!(t.fetch("former", 0, false).0, 1);
    t.pass_keeping(&a, generation, 5_000);
    t.expire();
    assert_eq!(t.fetch("former", 0, false).0, -1);
    assert_eq!(t.fetch("t", 0, false).0, 1);
    assert_eq!(t.fetch("u", 0, false).0, 1);
    assert_eq!(t.state(), GroupState::Stable);
}

#[test]
fn what_members_that_are_no_consumers_read_is_not_known() {
    let mut t = Coordinator::new();
    let (a, generation) = t.consumer_of("connect", &["t"]);
    t.commit(&a, generation, offset("former", 0, 1));
    t.pass_keeping(&a, generation, 2 * RETENTION_MS);
    t.expire();
    assert_eq!(t.fetch("former", 0, false).0, 1);
}

#[test]
fn a_rebalance_puts_expiry_off() {
    let mut t = Coordinator::new();
    let (a, generation) = t.consumer_of("consumer", &["t"]);
    t.commit(&a, generation, offset("former", 0, 1));
    t.pass_keeping(&a, generation, 2 * RETENTION_MS);
    t.join(join_of("b", ""));
    let (_, _) = t.start_joining("b");
    assert_eq!(t.state(), GroupState::PreparingRebalance);
    t.expire();
    assert_eq!(t.fetch("former", 0, false).0, 1);
}

#[test]
fn offsets_that_wait_for_a_marker_hold_theirs_and_the_group() {
    let mut t = Coordinator::new();
    assert_eq!(t.commit("", -1, offset("t", 0, 1)), ErrorCode::None);
    assert_eq!(t.commit("", -1, offset("t", 1, 1)), ErrorCode::None);
    assert_eq!(t.txn_commit(9, "", -1, offset("t", 0, 2)), ErrorCode::None);
    t.advance(RETENTION_MS);
    t.expire();
    assert_eq!(t.fetch("t", 0, false).0, 1);
    assert_eq!(t.fetch("t", 1, false).0, -1);
    t.end_transaction(9, false);
    t.expire();
    assert_eq!(t.fetch("t", 0, false).0, -1);
    assert_eq!(t.state(), GroupState::Dead);
}

#[test]
fn many_offsets_and_topics_are_looked_at_a_few_at_a_time() {
    let mut t = Coordinator::new();
    let topics: Vec<String> = (0..50).map(|n| format!("t{n:02}")).collect();
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let (a, generation) = t.consumer_of("consumer", &names);
    for topic in names.iter().copied().chain(["former", "u"]) {
        for partition in 0..3 {
            t.commit(&a, generation, offset(topic, partition, 1));
        }
    }
    t.pass_keeping(&a, generation, RETENTION_MS);
    let looks = t.expire_offsets(10, 10_000);
    assert!((5..20).contains(&looks), "{looks}");
    assert_eq!(t.fetch("u", 2, false).0, -1);
    assert_eq!(t.fetch("former", 2, false).0, -1);
    assert_eq!(t.fetch("t49", 2, false).0, 1);
}
