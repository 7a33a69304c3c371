"""Topics, configurations, limits and shapes of records, through confluent-kafka."""

import time

from harness import ck, deliver, eventually, needs_confluent
from test_transactions import rejected


def test_topics_are_created_described_and_deleted(env):
    topic = env.topic(partitions=3, config={"max.message.bytes": "51200"})
    admin = env.admin()
    assert len(admin.list_topics(topic, 10).topics[topic].partitions) == 3
    resource = ck.admin.ConfigResource(ck.admin.ConfigResource.Type.TOPIC, topic)
    config = admin.describe_configs([resource], request_timeout=20)[resource].result(20)
    assert config["max.message.bytes"].value == "51200"
    assert config["cleanup.policy"].value == "delete" and config["cleanup.policy"].is_default
    again = admin.create_topics([ck.admin.NewTopic(topic, 3, 1)], request_timeout=20)[topic]
    assert rejected(lambda: again.result(20)).code() == ck.KafkaError.TOPIC_ALREADY_EXISTS
    admin.delete_topics([topic], request_timeout=20)[topic].result(20)

    def gone():
        assert topic not in admin.list_topics(timeout=10).topics

    eventually(gone)


def test_recreated_topic_is_empty(env):
    topic = env.topic()
    deliver(env.producer(), topic, ["old"])
    admin = env.admin()
    admin.delete_topics([topic], request_timeout=20)[topic].result(20)
    eventually(lambda: env.topic(name=topic))
    eventually(lambda: deliver(env.producer(), topic, ["new"]))
    assert env.values(topic)[-1:] == ["new"] and "old" not in env.values(topic)


def test_bad_topics_are_refused_by_name(env):
    admin = env.admin()
    for name, partitions, code in (
        ("no/slash", 1, ck.KafkaError.TOPIC_EXCEPTION),
        ("x" * 250, 1, ck.KafkaError.TOPIC_EXCEPTION),
        (env.fresh(), 0, ck.KafkaError.INVALID_PARTITIONS),
    ):
        try:
            future = admin.create_topics([ck.admin.NewTopic(name, partitions, 1)], request_timeout=20)[name]
        except (ValueError, ck.KafkaException):
            continue  # the client does not even ask
        error = rejected(lambda: future.result(20))
        assert error.code() == code, (name, error)
    future = admin.create_topics([ck.admin.NewTopic("ok", 1, 1, config={"no.such.key": "1"})], request_timeout=20)["ok"]
    assert rejected(lambda: future.result(20)).code() == ck.KafkaError.INVALID_CONFIG


def test_unknown_topics_are_created_by_producers_only_when_asked(env):
    topic = env.fresh()
    deliver(env.producer(), topic, ["created"])
    assert env.values(topic) == ["created"]
    absent = env.fresh()
    consumer = env.consumer(allow_auto_create_topics=False)
    consumer.subscribe([absent])
    error = None
    deadline = time.monotonic() + 15
    while error is None and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        error = message.error() if message is not None else None
    assert error is not None and error.code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART, error


def test_too_large_record_is_refused(env):
    """A26: max.message.bytes of the topic; the log does not move."""
    topic = env.topic(config={"max.message.bytes": "51200"})
    producer = env.producer(message_max_bytes=20000000)
    errors = []
    producer.produce(topic, b"x" * 10_000_000, partition=0, on_delivery=lambda e, m: errors.append(e))
    producer.flush(30)
    assert errors and errors[0] and errors[0].code() == ck.KafkaError.MSG_SIZE_TOO_LARGE, errors
    assert env.ends(topic) == (0, 0)
    deliver(producer, topic, ["x" * 40_000])
    assert env.ends(topic) == (1, 1)


def test_small_fetch_limit_still_gets_whole_batches(env):
    """A26: a batch is larger than every limit of the reader; the first one comes whole, or it would wait for ever."""
    topic = env.topic()
    deliver(env.producer(), topic, [str(n) * 40_000 for n in range(5)])
    consumer = env.consumer(
        fetch_max_bytes=1000, max_partition_fetch_bytes=1000, message_max_bytes=1000, enable_partition_eof=True
    )
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    got = []
    deadline = time.monotonic() + 20
    while len(got) < 5 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and not message.error():
            got.append(message.value()[:1].decode())
    assert got == ["0", "1", "2", "3", "4"], got


def test_reading_starts_inside_a_batch(env):
    """A23: ten records in one batch, two in the next; a reader starts at 7, and at 11."""
    topic = env.topic()
    producer = env.producer(linger_ms=200)
    deliver(producer, topic, [str(n) for n in range(10)])
    deliver(producer, topic, ["10", "11"])
    assert env.values(topic, start=7) == ["7", "8", "9", "10", "11"]
    assert env.values(topic, start=11) == ["11"]


def test_offset_out_of_range_follows_the_reset_policy(env):
    topic = env.topic()
    deliver(env.producer(), topic, ["a", "b"])
    for policy, expected in (("earliest", "a"), ("latest", "c")):
        consumer = env.consumer(auto_offset_reset=policy)
        consumer.assign([ck.TopicPartition(topic, 0, 1000)])
        message = consumer.poll(2)
        if policy == "latest":
            assert message is None or message.error()
            deliver(env.producer(), topic, ["c"])
            message = eventually(lambda: some(consumer.poll(1)))
        assert message is not None and message.value().decode() == expected, (policy, message)


def some(message):
    assert message is not None and not message.error()
    return message


def test_codecs_come_back_as_they_were(env):
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = env.topic()
        producer = env.producer(compression_type=codec, linger_ms=50, enable_idempotence=True)
        values = [f"{codec} {number} " + "pad" * 30 for number in range(300)]
        deliver(producer, topic, values)
        assert env.values(topic) == values, codec


def test_codecs_in_transactions(env):
    topic = env.topic()
    expected = []
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        producer = env.transactional(compression_type=codec, linger_ms=20)
        for keep in (True, False):
            producer.begin_transaction()
            values = [f"{codec} {keep} {number} " + "pad" * 30 for number in range(50)]
            deliver(producer, topic, values)
            (producer.commit_transaction if keep else producer.abort_transaction)(30)
            expected += values if keep else []
    env.settled(lambda: equal(env.values(topic), expected))


def equal(got, expected):
    assert got == expected, (len(got), len(expected))


def test_keys_headers_timestamps_and_nulls(env):
    topic = env.topic()
    producer = env.producer()
    headers = [("a", b"1"), ("a", b"2"), ("none", None), ("empty", b"")]
    producer.produce(topic, value=b"v", key=b"k", headers=headers, timestamp=1234567890123, partition=0)
    producer.produce(topic, value=None, key=b"tombstone", partition=0)
    producer.produce(topic, value=b"", key=None, partition=0)
    producer.flush(20)
    consumer = env.consumer()
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    first, second, third = (eventually(lambda: some(consumer.poll(2))) for _ in range(3))
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", headers)
    assert first.timestamp() == (ck.TIMESTAMP_CREATE_TIME, 1234567890123)
    assert (second.key(), second.value()) == (b"tombstone", None)
    assert (third.key(), third.value()) == (None, b"")


def test_log_append_time(env):
    needs_confluent()
    topic = env.topic(config={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    producer = env.producer()
    producer.produce(topic, "x", timestamp=1000, partition=0)
    producer.flush(20)
    consumer = env.consumer()
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    kind, stamp = eventually(lambda: some(consumer.poll(2))).timestamp()
    assert kind == ck.TIMESTAMP_LOG_APPEND_TIME and before - 1000 <= stamp <= before + 10_000, (kind, stamp)


def test_acks_of_every_kind(env):
    topic = env.topic()
    for acks in ("0", "1", "all"):
        producer = env.producer(acks=acks)
        producer.produce(topic, acks, partition=0)
        producer.flush(20)
        eventually(lambda: equal(env.values(topic)[-1:], [acks]))
    assert env.values(topic) == ["0", "1", "all"]


def test_parked_reader_is_woken_by_a_record(env):
    topic = env.topic()
    consumer = env.consumer(fetch_wait_max_ms=50000)
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    assert consumer.poll(2) is None
    producer = env.producer()
    producer.produce(topic, "wake up", partition=0)
    started = time.monotonic()
    producer.flush(30)
    message = some(consumer.poll(45))
    waited = time.monotonic() - started
    assert message.value() == b"wake up" and waited < 25, f"it took {waited:.1f} s, the poll interval is 50 s"
