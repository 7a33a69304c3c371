//! DeleteTopics: an exclusive operation. The open transactions it cuts through are aborted with it,
//! at its tick, and the topic's offsets go from every group: a topic of the same name must neither
//! be part of an old transaction nor inherit positions.
//!
//! All of it is one record where that fits. A deletion that is too large goes on over several steps
//! before anything else is decided: first its transactions are ended and its offsets dropped, record
//! by record, then the topic goes. A crash in between leaves a topic whose deletion was asked for
//! and not answered.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::BytesMut;
use tidemark_metadata::{MetadataRecord, Refusal, TopicImage};
use tidemark_record_batch::BatchBuilder;
use tidemark_txn_coordinator::AbortReason;
use tidemark_types::{ErrorCode, TopicId, TopicPartitionId};

use crate::Owner;
use crate::command::{AbortedBy, Event, Now, Reply, Step, Token};
use crate::draft::Draft;
use crate::record::APPEND_HEAD_BYTES;

/// Tombstones of one batch, if the record has room for more.
const TOMBSTONE_BATCH_BYTES: usize = 256 << 10;
/// What the deletion of one topic takes in a batch of `__cluster_metadata`, and that batch's head.
const DELETED_BYTES: usize = 256;

/// One topic to delete, by name or by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteTopic {
    Name(String),
    Id(TopicId),
}

#[derive(Clone, Debug)]
pub struct DeleteTopics {
    pub topics: Vec<DeleteTopic>,
}

/// What became of one topic, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedTopic {
    pub name: Option<String>,
    pub id: TopicId,
    pub error: ErrorCode,
    pub message: Option<String>,
}

/// A request that is not answered yet.
pub(crate) struct Deletion {
    token: Token,
    /// In the order of the request.
    remaining: VecDeque<DeleteTopic>,
    /// Topics that the request names more than once.
    repeated: BTreeSet<TopicId>,
    done: Vec<DeletedTopic>,
}

impl Deletion {
    /// The answer when records of it may have been lost.
    pub(crate) fn given_up(self) -> (Token, Reply) {
        let left = self.remaining.into_iter().map(|topic| match topic {
            DeleteTopic::Name(name) => (Some(name), TopicId::ZERO),
            DeleteTopic::Id(id) => (None, id),
        });
        let done = self.done.into_iter().map(|topic| (topic.name, topic.id));
        let deleted = done.chain(left).map(|(name, id)| DeletedTopic {
            name,
            id,
            error: ErrorCode::NotController,
            message: None,
        });
        (self.token, Reply::DeleteTopics(deleted.collect()))
    }
}

/// A topic that this step deletes, and the tombstones of its offsets.
struct Doomed {
    topic: Arc<TopicImage>,
    /// The transactions that this deletion cuts through, but for those that one before it does.
    cuts: Vec<Arc<str>>,
    tombstones: Vec<(TopicPartitionId, Vec<u8>)>,
}

impl Owner {
    pub(crate) fn delete_topics(
        &mut self,
        token: Token,
        request: DeleteTopics,
        now: &Now<'_>,
        step: &mut Step,
    ) {
        let mut times_named: HashMap<TopicId, usize> = HashMap::new();
        for topic in &request.topics {
            if let Ok(topic) = self.find(topic) {
                *times_named.entry(topic.id).or_default() += 1;
            }
        }
        let repeated = times_named.into_iter().filter(|(_, times)| *times > 1);
        self.deletions.push_back(Deletion {
            token,
            remaining: request.topics.into(),
            repeated: repeated.map(|(id, _)| id).collect(),
            done: Vec::new(),
        });
        if self.deletions.len() == 1 {
            self.go_on_deleting(now, step);
        }
    }

    /// Writes the next record of the oldest deletion, and answers it when it is done.
    pub(crate) fn go_on_deleting(&mut self, now: &Now<'_>, step: &mut Step) {
        let Some(mut deletion) = self.deletions.pop_front() else {
            return;
        };
        let mut draft = self.begin(now);
        let doomed = self.take_what_fits(&draft, &mut deletion);
        match deletion.remaining.front().map(|topic| self.find(topic)) {
            Some(Ok(too_large)) if doomed.is_empty() => {
                self.lighten(&mut draft, &too_large.clone(), now, step);
            }
            _ => self.delete(&mut draft, doomed, now, step),
        }
        self.finish(draft, step);
        if deletion.remaining.is_empty() {
            let reply = Reply::DeleteTopics(deletion.done);
            step.replies.push((deletion.token, reply));
        } else {
            self.deletions.push_front(deletion);
        }
    }

    fn find(&self, topic: &DeleteTopic) -> Result<&Arc<TopicImage>, Refusal> {
        let record = match topic {
            DeleteTopic::Name(name) => self.metadata.decide_delete_topic(name)?,
            DeleteTopic::Id(id) => self.metadata.decide_delete_topic_by_id(*id)?,
        };
        let MetadataRecord::TopicDeleted { id } = record else {
            panic!("deleting a topic decided on {record:?}");
        };
        Ok(self
            .metadata
            .topic_by_id(id)
            .expect("decided on because it exists"))
    }

    /// Takes topics off the request as long as their deletion fits the record; those that cannot be
    /// deleted are answered on the way.
    fn take_what_fits(&self, draft: &Draft, deletion: &mut Deletion) -> Vec<Doomed> {
        let mut bytes = draft.bytes;
        let mut cut = BTreeSet::new();
        let mut doomed = Vec::new();
        let all = OnceCell::new();
        while let Some(request) = deletion.remaining.front() {
            let found = self.find(request).and_then(|topic| {
                if deletion.repeated.contains(&topic.id) {
                    let message =
                        "The provided topic name maps to an ID that was already supplied.";
                    return Err((ErrorCode::InvalidRequest, message.to_owned()));
                }
                Ok(topic.clone())
            });
            let (name, id) = match (request, &found) {
                (_, Ok(topic)) => (Some(topic.name.to_string()), topic.id),
                (DeleteTopic::Name(name), _) => (Some(name.clone()), TopicId::ZERO),
                (DeleteTopic::Id(id), _) => (None, *id),
            };
            let (error, message) = match found {
                Err((error, message)) => (error, Some(message)),
                Ok(topic) => {
                    let all = all.get_or_init(|| self.transactions_through());
                    let through = all.topic(&topic.name);
                    let cuts = through.iter().filter(|id| !cut.contains(*id));
                    let cuts: Vec<_> = cuts.cloned().collect();
                    let aborts: usize = cuts.iter().map(|id| self.abort_bytes(id)).sum();
                    let tombstones = self.tombstones(&topic.name, draft.wall_ms);
                    let batches = tombstones.iter().map(|(_, b)| APPEND_HEAD_BYTES + b.len());
                    let light = through.is_empty() && tombstones.is_empty();
                    let more = DELETED_BYTES + aborts + batches.sum::<usize>();
                    // With nothing hanging on it a topic always goes, alone if need be.
                    if bytes + more > self.max_record_bytes && !(light && doomed.is_empty()) {
                        break;
                    }
                    bytes += more;
                    cut.extend(cuts.iter().cloned());
                    doomed.push(Doomed {
                        topic,
                        cuts,
                        tombstones,
                    });
                    (ErrorCode::None, None)
                }
            };
            deletion.done.push(DeletedTopic {
                name,
                id,
                error,
                message,
            });
            deletion.remaining.pop_front();
        }
        doomed
    }

    /// The topics go first. In the record's canonical order, which replay follows, their deletion
    /// comes before any marker: none may stand in a partition that is gone by then.
    fn delete(&mut self, draft: &mut Draft, doomed: Vec<Doomed>, now: &Now<'_>, step: &mut Step) {
        if doomed.is_empty() {
            return;
        }
        let records: Vec<_> = doomed
            .iter()
            .map(|d| MetadataRecord::TopicDeleted { id: d.topic.id })
            .collect();
        self.append_metadata(draft, &records);
        for doomed in doomed {
            let Doomed {
                topic,
                cuts,
                tombstones,
            } = doomed;
            for id in cuts {
                self.cut(draft, &id, &topic.name, now, step);
            }
            for (id, batch) in tombstones {
                self.append(draft, id, BytesMut::from(&batch[..]));
            }
        }
    }

    /// Takes from a topic what hangs on it, as much as fits a record: its transactions, and when
    /// none is left its offsets.
    fn lighten(&mut self, draft: &mut Draft, topic: &TopicImage, now: &Now<'_>, step: &mut Step) {
        let before = draft.bytes;
        for id in self.transactions_through().topic(&topic.name) {
            let fits = draft.bytes + self.abort_bytes(id) <= self.max_record_bytes;
            if !fits && draft.bytes > before {
                return;
            }
            self.cut(draft, id, &topic.name, now, step);
        }
        if draft.bytes > before {
            return;
        }
        for (id, batch) in self.tombstones(&topic.name, draft.wall_ms) {
            let fits = draft.bytes + APPEND_HEAD_BYTES + batch.len() <= self.max_record_bytes;
            if !fits && draft.bytes > before {
                return;
            }
            self.append(draft, id, BytesMut::from(&batch[..]));
        }
    }

    /// Aborts a transaction that the topic's deletion cuts through.
    fn cut(
        &mut self,
        draft: &mut Draft,
        id: &Arc<str>,
        topic: &Arc<str>,
        now: &Now<'_>,
        step: &mut Step,
    ) {
        let meta = self.abort_by_broker(draft, id, AbortReason::Exclusive, now);
        step.events.push(Event::TransactionAborted {
            transactional_id: id.clone(),
            producer_id: meta.producer_id,
            epoch: meta.epoch,
            who: meta.who,
            by: AbortedBy::TopicDeleted {
                topic: topic.clone(),
            },
        });
    }

    /// Batches that drop every group's offsets in the topic, each of a moderate size.
    fn tombstones(&self, topic: &str, wall_ms: i64) -> Vec<(TopicPartitionId, Vec<u8>)> {
        let most = TOMBSTONE_BATCH_BYTES.min(self.max_record_bytes / 4);
        let mut batches = Vec::new();
        for (partition, records) in self.groups.records_for_deleted_topic(topic) {
            let id = TopicPartitionId::consumer_offsets(partition);
            let mut batch = BatchBuilder::new(wall_ms);
            for record in &records {
                batch.push(Some(&record.encode_key()), record.encode_value().as_deref());
                if batch.size_bytes() > most {
                    let full = std::mem::replace(&mut batch, BatchBuilder::new(wall_ms)).build();
                    batches.push((id, full));
                }
            }
            if batch.record_count() > 0 {
                batches.push((id, batch.build()));
            }
        }
        batches
    }
}
