"""kcat, as Debian ships it (librdkafka 2.0.2): the client that a newcomer tries first, and an old one."""

from harness import deliver, needs_confluent, needs_kcat


def test_metadata_names_the_address_that_was_dialled(env):
    text = env.kcat("-L")
    assert "1 brokers:" in text, text
    assert f"at {env.address}" in text, text


def test_plain_round_trip_creates_the_topic(env):
    topic = env.fresh()
    env.kcat("-P", "-t", topic, stdin="one\ntwo\nthree\n")
    assert env.kcat("-C", "-t", topic, "-e", "-q") == "one\ntwo\nthree\n"
    assert f'topic "{topic}" with' in env.kcat("-L", "-t", topic)


def test_keys_headers_and_partitions_come_back(env):
    topic = env.fresh()
    env.kcat("-P", "-t", topic, "-K:", "-H", "colour=red", stdin="k1:v1\nk2:v2\n")
    assert env.kcat("-C", "-t", topic, "-e", "-q", "-f", "%k %s %h %o\\n") == "k1 v1 colour=red 0\nk2 v2 colour=red 1\n"


def test_null_values_are_kept_apart_from_empty_ones(env):
    topic = env.fresh()
    env.kcat("-P", "-t", topic, "-K:", "-Z", stdin="gone:\nhere:x\n")
    assert env.kcat("-C", "-t", topic, "-e", "-q", "-f", "%k %S\\n") == "gone -1\nhere 1\n"


def test_idempotent_producer(env):
    topic = env.fresh()
    lines = "".join(f"{number}\n" for number in range(2000))
    env.kcat("-P", "-t", topic, "-X", "enable.idempotence=true", stdin=lines)
    assert env.kcat("-C", "-t", topic, "-e", "-q") == lines


def test_transaction_over_stdin(env):
    """`-X transactional.id` makes all of stdin one transaction: three records, then a marker at offset 3."""
    topic = env.fresh()
    env.kcat("-P", "-t", topic, "-X", f"transactional.id={topic}", stdin="a\nb\nc\n")
    env.settled(lambda: read_is(env, topic, "a 0\nb 1\nc 2\n"))
    env.kcat("-P", "-t", topic, stdin="after\n")
    read_is(env, topic, "a 0\nb 1\nc 2\nafter 4\n")


def read_is(env, topic, expected):
    got = env.kcat("-C", "-t", topic, "-e", "-q", "-f", "%s %o\\n", "-X", "isolation.level=read_committed")
    assert got == expected, got


def test_end_option_stops_on_an_empty_topic(env):
    """An empty Fetch answer must carry empty records, not null: otherwise `-e` waits for ever."""
    topic = env.topic(partitions=3)
    for isolation in ("read_committed", "read_uncommitted"):
        assert env.kcat("-C", "-t", topic, "-e", "-q", "-X", f"isolation.level={isolation}") == ""


def test_end_option_stops_on_an_aborted_tail(env):
    needs_kcat()
    topic = env.topic()
    producer = env.transactional()
    producer.begin_transaction()
    deliver(producer, topic, ["good"])
    producer.commit_transaction(30)
    producer.begin_transaction()
    deliver(producer, topic, ["bad", "worse"])
    producer.abort_transaction(30)
    env.settled(lambda: read_is(env, topic, "good 0\n"))
    raw = env.kcat("-C", "-t", topic, "-e", "-q", "-X", "isolation.level=read_uncommitted")
    assert raw == "good\nbad\nworse\n", raw


def test_end_option_stops_before_an_open_transaction(env):
    needs_kcat()
    topic = env.topic()
    deliver(env.producer(), topic, ["before"])
    producer = env.transactional()
    producer.begin_transaction()
    deliver(producer, topic, ["open"])
    read_is(env, topic, "before 0\n")
    producer.abort_transaction(30)


def test_codecs(env):
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = env.fresh(codec)
        lines = "".join(f"{codec} line {number} {'pad' * 20}\n" for number in range(500))
        env.kcat("-P", "-t", topic, "-z", codec, stdin=lines)
        assert env.kcat("-C", "-t", topic, "-e", "-q") == lines, codec


def test_offsets_by_time_and_from_the_end(env):
    needs_confluent()
    # Records of 1970 are expired: retention would take them away in the middle of it.
    topic = env.topic(config={"retention.ms": "-1"})
    producer = env.producer()
    for stamp in (2000, 4000, 6000, 8000):
        producer.produce(topic, str(stamp), partition=0, timestamp=stamp)
        producer.flush(10)
    for asked, offset in ((1000, 0), (2000, 0), (3000, 1), (8000, 3), (9000, -1)):
        answer = env.kcat("-Q", "-t", f"{topic}:0:{asked}").strip()
        assert answer.endswith(f"offset {offset}"), (asked, answer)
    assert env.kcat("-C", "-t", topic, "-p", "0", "-o", "-2", "-e", "-q") == "6000\n8000\n"
    assert env.kcat("-C", "-t", topic, "-p", "0", "-o", "1", "-c", "2", "-q") == "4000\n6000\n"


def test_balanced_group_reads_everything(env):
    needs_confluent()
    topic = env.topic(partitions=4)
    env.kcat("-P", "-t", topic, "-K:", stdin="".join(f"k{n}:v{n}\n" for n in range(100)))
    got = env.kcat("-G", env.fresh("g"), "-q", "-e", "-c", "100", "-o", "beginning", topic, "-X", "auto.offset.reset=earliest")
    assert sorted(got.split()) == sorted(f"v{n}" for n in range(100)), got
