//! Moves that change topics, their records and what the cluster knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidemark_metadata::{
    ConfigChange, ScramCredential, ScramDeletion, ScramMechanism, ScramUpsertion,
};
use tidemark_owner::*;
use tidemark_txn_coordinator::TxnState;
use tidemark_types::{ErrorCode, TopicPartitionId};

use crate::moves::TOPICS;
use crate::player::{Player, nth};

impl Player {
    /// A partition and an offset in it, -1 for none.
    pub fn offset_at(&self, partition: usize, tenths: i64) -> (TopicPartitionId, i64, Partition) {
        let (topic, index) = nth(partition);
        let state = self.world.partition(topic, index).clone();
        let held = state.log_end_offset - state.log_start_offset;
        let offset = match tenths {
            -1 => -1,
            11 => state.log_end_offset + 1,
            tenths => state.log_start_offset + held * tenths / 10,
        };
        (state.id, offset, state)
    }

    pub fn delete_records(&mut self, partition: usize, tenths: i64) {
        if !self.exists(partition) {
            return;
        }
        let (id, offset, before) = self.offset_at(partition, tenths);
        let partitions = vec![(id, offset)];
        let request = DeleteRecords { partitions };
        let Reply::DeleteRecords(answers) = self.world.ask(Command::DeleteRecords(request)) else {
            panic!("another reply");
        };
        let after = self.world.owner.partition(id).expect("it is there").clone();
        match answers[0] {
            Ok(low_watermark) => {
                assert_eq!(low_watermark, after.log_start_offset);
                let wanted = if offset == -1 {
                    before.log_end_offset
                } else {
                    offset
                };
                assert_eq!(low_watermark, wanted);
                let first_open = before.producers.first_unstable_offset();
                if wanted > before.log_start_offset && first_open.is_some_and(|o| o < wanted) {
                    let exclusive = self.world.options.exclusive.delete_records;
                    self.reach(match exclusive {
                        true => "transaction cut by DeleteRecords",
                        false => "records deleted under an open transaction",
                    });
                    let first_open = after.producers.first_unstable_offset();
                    let below = first_open.is_some_and(|first| first < wanted);
                    assert_eq!(below, !exclusive, "cut through, and open");
                }
                if wanted > before.log_start_offset {
                    self.reach("records deleted");
                }
            }
            Err(code) => {
                assert_eq!(after, before);
                match code {
                    ErrorCode::OffsetOutOfRange => self.reach("log start out of range"),
                    // What it cuts through does not end in one record.
                    ErrorCode::RequestTimedOut => {
                        assert!(self.world.options.exclusive.delete_records);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        // What producers and transactions know outlives the records, unless it was cut through.
        let open_before: Vec<_> = before.producers.open_transactions().collect();
        let open_after: Vec<_> = after.producers.open_transactions().collect();
        let cut = open_before.len() - open_after.len();
        let exclusive = self.world.options.exclusive.delete_records;
        assert!(before.producers == after.producers || (exclusive && cut > 0));
        // Whoever began at or above the offset goes on.
        let above = open_before
            .iter()
            .filter(|open| open.first_offset >= after.log_start_offset);
        for open in above.clone() {
            assert!(open_after.contains(open), "{open:?} was not cut through");
        }
        if cut > 0 && above.count() > 0 {
            self.reach("transaction above the deleted records");
        }
    }

    /// The ids whose transaction is ongoing, with what they have enrolled.
    pub fn open(&self) -> BTreeMap<Arc<str>, BTreeSet<(Arc<str>, i32)>> {
        let ongoing = self.world.owner.coordinator().iter();
        ongoing
            .filter(|meta| meta.state == TxnState::Ongoing)
            .map(|meta| (meta.transactional_id.clone(), meta.partitions.clone()))
            .collect()
    }

    /// After an operation that has cut through these topics, and no others: what was open in them
    /// is aborted, all else goes on. True if anything was.
    pub fn were_cut(
        &self,
        topics: &BTreeSet<&str>,
        before: &BTreeMap<Arc<str>, BTreeSet<(Arc<str>, i32)>>,
    ) -> bool {
        let through = |partitions: &BTreeSet<(Arc<str>, i32)>| {
            let mut enrolled = partitions.iter();
            enrolled.any(|(topic, _)| topics.contains(&**topic))
        };
        let mut left = before.clone();
        left.retain(|_, partitions| !through(partitions));
        assert_eq!(self.open(), left, "cut through {topics:?}");
        left.len() < before.len()
    }

    pub fn any_open_in(&self, topic: &str) -> bool {
        let open = self.open();
        let mut enrolled = open.values().flatten();
        enrolled.any(|(enrolled, _)| **enrolled == *topic)
    }

    pub fn grow(&mut self, topics: &BTreeSet<usize>, more: i32) {
        let count_of = |player: &Player, topic: usize| {
            let metadata = player.world.owner.metadata();
            metadata.topic(TOPICS[topic].0).map(|t| t.partitions)
        };
        let before = self.open();
        let counts: Vec<_> = topics.iter().map(|t| count_of(self, *t)).collect();
        let wanted = topics.iter().zip(&counts).map(|(topic, count)| GrowTopic {
            name: TOPICS[*topic].0.to_owned(),
            // Not for ever.
            count: (count.unwrap_or(0) + more).min(6),
            assignments: None,
        });
        let request = CreatePartitions {
            topics: wanted.collect(),
            validate_only: false,
        };
        let Reply::CreatePartitions(grown) = self.world.ask(Command::CreatePartitions(request))
        else {
            panic!("another reply");
        };
        let exclusive = self.world.options.exclusive.create_partitions;
        let mut cut = BTreeSet::new();
        for ((topic, grown), count) in topics.iter().zip(grown).zip(counts) {
            let name = TOPICS[*topic].0;
            match grown {
                Ok(()) => {
                    assert!(count_of(self, *topic) > count);
                    self.reach("partitions created");
                    match exclusive {
                        true => drop(cut.insert(name)),
                        false if self.any_open_in(name) => {
                            self.reach("partitions created under an open transaction");
                        }
                        false => {}
                    }
                }
                Err((code, _)) => {
                    assert_eq!(count_of(self, *topic), count);
                    match code {
                        ErrorCode::UnknownTopicOrPartition => assert_eq!(count, None),
                        ErrorCode::InvalidPartitions => {}
                        ErrorCode::InvalidRequest if exclusive && self.any_open_in(name) => {
                            self.reach("refused, its cuts fit no record");
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
        if self.were_cut(&cut, &before) {
            self.reach("transaction cut by CreatePartitions");
        }
    }

    pub fn alter(&mut self, topics: &BTreeSet<usize>, (key, value): (&str, &str)) {
        let config_of = |player: &Player, topic: &str| {
            let topic = player.world.owner.metadata().topic(topic)?;
            let policy = topic.resolve(&Default::default()).cleanup_policy;
            Some((topic.config.clone(), policy))
        };
        let change = match value {
            "" => ConfigChange::Delete,
            value => ConfigChange::Set(value.to_owned()),
        };
        let before = self.open();
        let names: Vec<_> = topics.iter().map(|topic| TOPICS[*topic].0).collect();
        let configs: Vec<_> = names.iter().map(|name| config_of(self, name)).collect();
        let resources = names.iter().map(|name| AlterResource {
            resource: ConfigResource::Topic((*name).to_owned()),
            alteration: Alteration::Changes(vec![(key.to_owned(), change.clone())]),
        });
        let request = AlterConfigs {
            resources: resources.collect(),
            validate_only: false,
        };
        let Reply::AlterConfigs(altered) = self.world.ask(Command::AlterConfigs(request)) else {
            panic!("another reply");
        };
        let exclusive = self.world.options.exclusive.cleanup_policy;
        let mut cut = BTreeSet::new();
        for ((name, altered), config) in names.into_iter().zip(altered).zip(configs) {
            let now_is = config_of(self, name);
            match altered {
                Ok(()) => {
                    let (Some((was, policy_was)), Some((is, policy_is))) = (config, now_is) else {
                        panic!("{name} does not exist");
                    };
                    self.reach("config altered");
                    let open = self.any_open_in(name);
                    if policy_was != policy_is && exclusive {
                        cut.insert(name);
                    } else if policy_was != policy_is && open {
                        self.reach("cleanup.policy changed under an open transaction");
                    } else if was.get("cleanup.policy") != is.get("cleanup.policy") && open {
                        self.reach("cleanup.policy written down");
                    }
                }
                Err((code, _)) => {
                    assert_eq!(now_is, config);
                    match code {
                        ErrorCode::UnknownTopicOrPartition => assert_eq!(config, None),
                        ErrorCode::InvalidConfig => assert_eq!(value, "burn"),
                        // Its own cuts, or with those of a topic before it in the request.
                        ErrorCode::InvalidRequest if exclusive && self.small_slots => {
                            self.reach("refused, its cuts fit no record");
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
        if self.were_cut(&cut, &before) {
            self.reach("transaction cut by cleanup.policy");
        }
    }

    pub fn scram(&mut self, user: &str, mechanism: i8, set: bool, n: usize) {
        let known = ScramMechanism::from_code(mechanism.unsigned_abs()).expect("1 or 2");
        let there = |player: &Player| {
            let found = player.world.owner.metadata().scram_credential(user, known);
            found.cloned()
        };
        let before = there(self);
        let user = user.to_owned();
        let credential = ScramCredential {
            iterations: 4096,
            salt: n.to_be_bytes().to_vec(),
            stored_key: vec![1; 32],
            server_key: vec![2; 32],
        };
        let mut request = AlterScram::default();
        match set {
            true => request.upsertions.push(ScramUpsertion {
                user: user.clone(),
                mechanism,
                credential: credential.clone(),
            }),
            false => request.deletions.push(ScramDeletion {
                user: user.clone(),
                mechanism,
            }),
        }
        let Reply::AlterScram(mut altered) = self.world.ask(Command::AlterScram(request)) else {
            panic!("another reply");
        };
        let (told, altered) = altered.pop().expect("one user was named");
        assert_eq!(told, user);
        match (set, before) {
            (true, _) => {
                assert_eq!((altered, there(self)), (Ok(()), Some(credential)));
                self.reach("credential set");
            }
            (false, Some(_)) => {
                assert_eq!((altered, there(self)), (Ok(()), None));
                self.reach("credential removed");
            }
            (false, None) => {
                let code = altered.map_err(|(code, _)| code);
                assert_eq!(code, Err(ErrorCode::ResourceNotFound));
            }
        }
    }

    pub fn retain(&mut self, partitions: &[usize], tenths: i64) {
        let exist = partitions.iter().filter(|p| self.exists(**p));
        let moves: Vec<_> = exist.map(|p| self.offset_at(*p, tenths)).collect();
        let request = MoveLogStarts {
            partitions: moves.iter().map(|(id, offset, _)| (*id, *offset)).collect(),
        };
        self.world
            .give_without_reply(Command::MoveLogStarts(request));
        for (id, offset, before) in moves {
            let after = self.world.owner.partition(id).expect("it is there");
            let stable = before.last_stable_offset();
            assert_eq!(
                after.log_start_offset,
                offset.min(stable).max(before.log_start_offset)
            );
            if after.log_start_offset > before.log_start_offset {
                self.reach("retained");
            }
        }
        self.cut_metadata();
    }

    pub fn cut_metadata(&mut self) {
        let log_start = |owner: &Owner| {
            let metadata = owner.partition(TopicPartitionId::METADATA);
            metadata.expect("it is always there").log_start_offset
        };
        let before = log_start(&self.world.owner);
        let image = self.world.owner.metadata().clone();
        let log_bytes = u64::MAX;
        self.world
            .give_without_reply(Command::SnapshotMetadata(SnapshotMetadata { log_bytes }));
        assert_eq!(*self.world.owner.metadata(), image, "it says nothing new");
        if log_start(&self.world.owner) > before {
            self.reach("metadata cut");
        }
    }
}
