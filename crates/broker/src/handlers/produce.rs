//! Produce (0), v3-v13: appends batches, each partition's for itself.
//!
//! v3 transactional id; v5 log start offset; v7 zstd; v8 record errors (KIP-467); v9 flexible;
//! v10 leader hints (KIP-951, never needed on one broker); v11 TRANSACTION_ABORTABLE; v12 a
//! transaction's first batch enrols its partition (KIP-890, version 2); v13 topic ids (KIP-516).
//! Write on each topic; a request with a transactional batch needs a transactional id and Write on it,
//! by the batches' own headers and not only where the request says so (CVE-2018-17196).
//! acks=1 and acks=all both wait until the batches are durable; acks=0 gets no answer, and an error
//! closes the connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::TopicName;
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use tidemark_authorizer::Operation;
use tidemark_config::TransactionalIdOwner;
use tidemark_metadata::{
    CompressionType, MessageTimestampType, TopicConfig, TopicDefaults, TopicImage,
};
use tidemark_owner::{
    Command, NoteRefused, Produce, ProduceBatch, Produced, Record, RefusedBatch, Reply,
};
use tidemark_record_batch::{
    BatchError, BatchHeader, Codec, DecompressLimits, ProduceRules, Refusal, TimestampType,
    ValidBatch, recompress_batch, validate_produce,
};
use tidemark_types::{CLUSTER_METADATA, ErrorCode, TopicPartitionId};
use tidemark_wire::{
    ProducePartition, ProduceRequest, ProduceTopic, WireError, decode_produce_request,
};

use crate::admission::Wants;
use crate::authorize::Resource;
use crate::limits::Limit;
use crate::shared::{ADMISSION_PATIENCE, NotDecided, View};

use super::{Cx, Outcome, Pending, text, uuid, wrong_reply};

/// What is known of a partition's batch before the owner is asked.
enum Checked {
    /// Goes to the owner, as the n-th batch of the command.
    Submitted(usize),
    Refused(Refusal),
}

pub(crate) async fn handle(cx: Cx, body: &Bytes) -> Result<Pending, WireError> {
    let mut request = decode_produce_request(cx.version(), body)?;
    if lacks_transactional_right(&cx, &request) {
        let code = ErrorCode::TransactionalIdAuthorizationFailed;
        let checked = refuse_all(&request, |_| code);
        let nothing = Reply::Produce(Vec::new());
        return Ok(Pending::Ready(finish(
            &cx,
            &request,
            &checked,
            Some(nothing),
        )));
    }
    if !matches!(request.acks, -1..=1) {
        let view = cx.shared.read();
        let rights = cx.rights();
        let checked = refuse_all(&request, |topic| {
            let name = named(&cx, topic, topic_of(&cx, &view, topic));
            match name.is_none_or(|name| rights.may(Operation::Write, Resource::Topic(name))) {
                true => ErrorCode::InvalidRequiredAcks,
                false => ErrorCode::TopicAuthorizationFailed,
            }
        });
        return Ok(Pending::Ready(respond(&cx, &request, &checked, &[])));
    }
    let (checked, batches, damaged) = check(&cx, &request);
    // The batches are copies: the frame is not kept until they are durable.
    for partition in request.topics.iter_mut().flat_map(|t| &mut t.partitions) {
        partition.records = None;
    }
    // Room first: past this point nothing is refused for lack of it.
    let bytes = Record::payload_bytes(batches.iter().map(|batch| batch.bytes.len()));
    let wants = Wants::Data(bytes as u64);
    let in_case_of_refusal: Vec<RefusedBatch> = batches
        .iter()
        .map(|batch| refused_batch(batch.partition, &batch.valid.header))
        .collect();
    let mut command = Command::Produce(Produce {
        version: cx.version(),
        transactional_id: request.transactional_id.as_deref().map(Arc::from),
        batches,
    });
    if cx.shared.settings.transactional_id_owner == TransactionalIdOwner::First {
        command = cx.on_its_connection(command);
    }
    let shared = cx.shared.clone();
    if !damaged.is_empty() {
        let _noted = shared
            .submit_read(Command::NoteRefused(NoteRefused { batches: damaged }))
            .await;
    }
    let patience_ms = u64::try_from(request.timeout_ms).unwrap_or(0);
    let patience = Duration::from_millis(patience_ms).min(ADMISSION_PATIENCE);
    match shared.submit(command, wants, patience).await {
        Ok(reply) => Ok(Pending::later(async move {
            finish(&cx, &request, &checked, reply.await.ok())
        })),
        Err(not_decided) => {
            if not_decided == NotDecided::NoRoom {
                // The client tries again: of its batches in flight the later ones must not get in
                // first.
                let _noted = shared
                    .submit_read(Command::NoteRefused(NoteRefused {
                        batches: in_case_of_refusal,
                    }))
                    .await;
            }
            Ok(Pending::Ready(finish(&cx, &request, &checked, None)))
        }
    }
}

/// True for a request with a transactional batch that names no transactional id, or one that the
/// client may not write. All of it is refused, as in Kafka.
fn lacks_transactional_right(cx: &Cx, request: &ProduceRequest) -> bool {
    let may = || {
        let id = request.transactional_id.as_deref();
        id.is_some_and(|id| cx.may(Operation::Write, Resource::TransactionalId(id)))
    };
    let mut partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    let is_transactional = |partition: &ProducePartition| {
        (partition.records.as_ref()).is_some_and(|records| says_transactional(records))
    };
    partitions.any(is_transactional) && !may()
}

/// By a batch's head alone: what is no batch of this format is refused later.
fn says_transactional(records: &[u8]) -> bool {
    const MAGIC: usize = 16;
    const ATTRIBUTES: usize = 21;
    const TRANSACTIONAL: u8 = 1 << 4;
    records.get(MAGIC) == Some(&2)
        && (records.get(ATTRIBUTES + 1)).is_some_and(|low| low & TRANSACTIONAL != 0)
}

fn refuse_all(
    request: &ProduceRequest,
    code: impl Fn(&ProduceTopic) -> ErrorCode,
) -> Vec<Vec<Checked>> {
    let refuse = |topic: &ProduceTopic| {
        let refusal = refusal(code(topic));
        let partitions = topic.partitions.iter();
        partitions
            .map(|_| Checked::Refused(refusal.clone()))
            .collect()
    };
    request.topics.iter().map(refuse).collect()
}

fn topic_of<'v>(cx: &Cx, view: &'v View<'_>, topic: &ProduceTopic) -> Option<&'v Arc<TopicImage>> {
    match cx.version() {
        13.. => view.image.topic_by_id(topic.topic_id),
        _ => view.image.topic(&topic.name),
    }
}

/// What the client's right is asked by: from v13 on a topic that is there, before it whatever was
/// named.
fn named<'t>(
    cx: &Cx,
    topic: &'t ProduceTopic,
    found: Option<&'t Arc<TopicImage>>,
) -> Option<&'t str> {
    match cx.version() {
        13.. => found.map(|found| &*found.name),
        _ => Some(&topic.name),
    }
}

/// The answer, from what the owner decided. `None`: it did not, or whether it is in the journal is
/// not known. Retriable either way.
fn finish(
    cx: &Cx,
    request: &ProduceRequest,
    checked: &[Vec<Checked>],
    reply: Option<Reply>,
) -> Outcome {
    let produced = match reply {
        Some(Reply::Produce(produced)) => produced,
        Some(other) => wrong_reply(other),
        None => checked
            .iter()
            .flatten()
            .filter(|c| matches!(c, Checked::Submitted(_)))
            .map(|_| Produced::refused(ErrorCode::KafkaStorageError))
            .collect(),
    };
    if request.acks == 0 {
        let failed = checked
            .iter()
            .flatten()
            .any(|c| matches!(c, Checked::Refused(_)))
            || produced.iter().any(|p| p.error.is_err());
        return match failed {
            true => Outcome::Close,
            false => Outcome::Nothing,
        };
    }
    respond(cx, request, checked, &produced)
}

fn refused_batch(partition: TopicPartitionId, header: &BatchHeader) -> RefusedBatch {
    RefusedBatch {
        partition,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
    }
}

/// Checks every batch against its topic: all that needs no state of the owner. Last come those that
/// were damaged on the way, which the client sends again.
fn check(
    cx: &Cx,
    request: &ProduceRequest,
) -> (Vec<Vec<Checked>>, Vec<ProduceBatch>, Vec<RefusedBatch>) {
    let mut damaged = Vec::new();
    let view = cx.shared.read();
    let rights = cx.rights();
    let wall_ms = cx.shared.clock.wall_ms();
    let mut batches: Vec<ProduceBatch> = Vec::new();
    let mut record_bytes = 0;
    let checked = request
        .topics
        .iter()
        .map(|topic| {
            let image = topic_of(cx, &view, topic);
            let name = named(cx, topic, image);
            let may = name.is_none_or(|name| rights.may(Operation::Write, Resource::Topic(name)));
            topic
                .partitions
                .iter()
                .map(|partition| {
                    if !may {
                        return Checked::Refused(refusal(ErrorCode::TopicAuthorizationFailed));
                    }
                    let records = partition.records.as_ref();
                    match check_batch(cx, image, &view.defaults, partition.index, records, wall_ms)
                    {
                        Err(refusal) => {
                            if refusal.of_content && refusal.code == ErrorCode::MessageTooLarge {
                                cx.reached(Limit::Decompression, || {
                                    "a compressed batch becomes more than decompression.max.ratio \
                                     or decompression.max.bytes allow"
                                        .to_owned()
                                });
                            }
                            if refusal.code == ErrorCode::CorruptMessage
                                && let Some(topic) = image
                                && let Some(header) =
                                    records.and_then(|r| BatchHeader::parse(r).ok())
                            {
                                let id = TopicPartitionId::new(topic.id, partition.index);
                                damaged.push(refused_batch(id, &header));
                            }
                            Checked::Refused(refusal)
                        }
                        Ok(batch) => {
                            // A batch and its head in the record; a record never spans slots.
                            record_bytes += batch.bytes.len() + 32;
                            if record_bytes > cx.shared.max_record_bytes {
                                return Checked::Refused(refusal(ErrorCode::MessageTooLarge));
                            }
                            batches.push(batch);
                            Checked::Submitted(batches.len() - 1)
                        }
                    }
                })
                .collect()
        })
        .collect();
    (checked, batches, damaged)
}

fn check_batch(
    cx: &Cx,
    topic: Option<&Arc<TopicImage>>,
    defaults: &TopicDefaults,
    partition: i32,
    records: Option<&Bytes>,
    wall_ms: i64,
) -> Result<ProduceBatch, Refusal> {
    let topic = topic
        .filter(|topic| &*topic.name != CLUSTER_METADATA)
        .ok_or_else(|| {
            refusal(match cx.version() {
                13.. => ErrorCode::UnknownTopicId,
                _ => ErrorCode::UnknownTopicOrPartition,
            })
        })?;
    if !topic.has_partition(partition) {
        return Err(refusal(ErrorCode::UnknownTopicOrPartition));
    }
    if topic.internal {
        return Err(refusal(ErrorCode::InvalidTopicException));
    }
    let config = topic.resolve(defaults);
    let timestamp_type = match config.message_timestamp_type {
        MessageTimestampType::CreateTime => TimestampType::CreateTime,
        MessageTimestampType::LogAppendTime => TimestampType::LogAppendTime,
    };
    let rules = ProduceRules {
        max_message_bytes: usize::try_from(config.max_message_bytes).unwrap_or(0),
        produce_version: cx.version(),
        timestamp_type,
        message_timestamp_before_max_ms: config.message_timestamp_before_max_ms,
        message_timestamp_after_max_ms: config.message_timestamp_after_max_ms,
        compacted: config.cleanup_policy.compact,
        check_records: true,
        wall_ms,
        limits: DecompressLimits {
            ratio: cx.shared.settings.decompression_max_ratio,
            max_bytes: usize::try_from(cx.shared.settings.decompression_max_bytes)
                .unwrap_or(usize::MAX),
            ..DecompressLimits::default()
        },
    };
    let none = Bytes::new();
    let records = records.unwrap_or(&none);
    let valid = validate_produce(records, &rules)?;
    let bytes = stored(records, &valid, &config, &rules)?;
    Ok(ProduceBatch {
        partition: TopicPartitionId::new(topic.id, partition),
        topic: topic.name.clone(),
        valid,
        bytes,
        timestamp_type,
    })
}

/// The batch as it will be stored: in the codec that the topic asks for, and not larger than the
/// topic and its segments take. In its own codec a batch is not compressed anew, as in Kafka,
/// whatever the level.
fn stored(
    records: &Bytes,
    valid: &ValidBatch,
    config: &TopicConfig,
    rules: &ProduceRules,
) -> Result<BytesMut, Refusal> {
    let level = |level: i32, default: i32| Some(level).filter(|level| *level != default);
    let (codec, level) = match config.compression_type {
        CompressionType::Producer => (None, None),
        CompressionType::Uncompressed => (Some(Codec::None), None),
        CompressionType::Gzip => (Some(Codec::Gzip), level(config.compression_gzip_level, -1)),
        CompressionType::Snappy => (Some(Codec::Snappy), None),
        CompressionType::Lz4 => (Some(Codec::Lz4), None),
        CompressionType::Zstd => (Some(Codec::Zstd), Some(config.compression_zstd_level)),
    };
    let is_so = codec.is_none_or(|codec| valid.header.attributes.codec() == Some(codec));
    let bytes = match codec {
        Some(codec) if !is_so => recompress_batch(records, codec, level, &rules.limits)
            .map(BytesMut::from)
            .map_err(|e| match e {
                BatchError::DecompressedTooLarge | BatchError::Length(_) => {
                    refusal(ErrorCode::MessageTooLarge)
                }
                _ => refusal(ErrorCode::InvalidRecord),
            })?,
        // One copy: the batch must be writable (its offset is patched) and must not keep a whole
        // frame alive in the tail.
        _ => BytesMut::from(&records[..]),
    };
    if bytes.len() > rules.max_message_bytes {
        return Err(refusal(ErrorCode::MessageTooLarge));
    }
    if bytes.len() > usize::try_from(config.segment_bytes).unwrap_or(usize::MAX) {
        return Err(refusal(ErrorCode::RecordListTooLarge));
    }
    Ok(bytes)
}

fn refusal(code: ErrorCode) -> Refusal {
    Refusal {
        message: None,
        ..Refusal::new(code, "")
    }
}

fn respond(
    cx: &Cx,
    request: &ProduceRequest,
    checked: &[Vec<Checked>],
    produced: &[Produced],
) -> Outcome {
    let view = cx.shared.read();
    let responses = request
        .topics
        .iter()
        .zip(checked)
        .map(|(topic, checked)| {
            let image = topic_of(cx, &view, topic);
            let log_start_offset = |partition| {
                let id = TopicPartitionId::new(image?.id, partition);
                Some(view.log(id)?.at(view.tick()).log_start_offset)
            };
            let partitions = topic.partitions.iter().zip(checked);
            let response = match cx.version() {
                13.. => TopicProduceResponse::default().with_topic_id(uuid(topic.topic_id)),
                _ => TopicProduceResponse::default().with_name(TopicName(topic.name.clone())),
            };
            response.with_partition_responses(
                partitions
                    .map(|(partition, checked)| {
                        let log_start_offset = || log_start_offset(partition.index).unwrap_or(-1);
                        let (version, index) = (cx.version(), partition.index);
                        respond_partition(version, index, checked, produced, log_start_offset)
                    })
                    .collect(),
            )
        })
        .collect();
    cx.answer(&ProduceResponse::default().with_responses(responses))
}

fn respond_partition(
    version: i16,
    index: i32,
    checked: &Checked,
    produced: &[Produced],
    log_start_offset: impl Fn() -> i64,
) -> PartitionProduceResponse {
    let answer = PartitionProduceResponse::default()
        .with_index(index)
        .with_base_offset(-1)
        .with_log_append_time_ms(-1);
    match checked {
        Checked::Submitted(n) => {
            let produced = &produced[*n];
            let answer = answer
                .with_error_code(produced.error.code())
                .with_base_offset(produced.base_offset)
                .with_log_append_time_ms(produced.log_append_time_ms);
            match version {
                5.. => answer.with_log_start_offset(produced.log_start_offset),
                _ => answer,
            }
        }
        Checked::Refused(refusal) => {
            let mut answer = answer.with_error_code(refusal.code.code());
            if version >= 5 && refusal.of_content {
                answer = answer.with_log_start_offset(log_start_offset());
            }
            if version < 8 {
                return answer;
            }
            answer
                .with_error_message(refusal.message.as_deref().map(text))
                .with_record_errors(
                    refusal
                        .record_errors
                        .iter()
                        .map(|(index, message)| {
                            BatchIndexAndErrorMessage::default()
                                .with_batch_index(*index)
                                .with_batch_index_error_message(Some(text(message)))
                        })
                        .collect(),
                )
        }
    }
}
