"""Transactions through confluent-kafka (librdkafka)."""

import threading
import time

from harness import ck, deliver, eventually, needs_confluent


def rejected(call):
    """The KafkaError that `call` raises."""
    try:
        call()
    except ck.KafkaException as error:
        return error.args[0]
    raise AssertionError("this had to fail")


def test_two_transactions_back_to_back_on_one_id(env):
    """The second begins right after the first ended, a hundred times; each is visible when commit returns."""
    topic = env.topic(partitions=2)
    producer = env.transactional()
    for number in range(100):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topic, f"{number}", partition=partition)
        producer.commit_transaction(30)
    expected = [str(number) for number in range(100)]

    def check():
        for partition in range(2):
            got = [value for p, _, value in env.read(topic, partitions=2) if p == partition]
            assert got == expected, got

    env.settled(check)
    assert env.ends(topic) == (200, 200), "a record and a marker each"


def test_reader_sees_a_commit_as_soon_as_it_returns(env):
    topic = env.topic()
    producer = env.transactional()
    for number in range(30):
        producer.begin_transaction()
        producer.produce(topic, f"{number}", partition=0)
        producer.commit_transaction(30)

        def check():
            assert env.values(topic, start=2 * number) == [str(number)]

        env.settled(check)


def test_overlapping_transactions_of_two_producers(env):
    """The last stable offset moves past the first that ends, up to the one that is still open."""
    topic = env.topic()
    first, second = env.transactional(), env.transactional()
    first.begin_transaction()
    deliver(first, topic, ["first"])
    second.begin_transaction()
    deliver(second, topic, ["second"])
    assert env.ends(topic) == (0, 2)
    first.commit_transaction(30)
    env.settled(lambda: same(env.ends(topic), (1, 3)))
    assert env.values(topic) == ["first"]
    second.commit_transaction(30)
    env.settled(lambda: same(env.ends(topic), (4, 4)))
    assert env.values(topic) == ["first", "second"]


def same(got, expected):
    assert got == expected, (got, expected)
    return got


def test_interleaved_abort_hides_only_its_own_records(env):
    topic = env.topic()
    a, b = env.transactional(), env.transactional()
    a.begin_transaction()
    b.begin_transaction()
    deliver(a, topic, ["a1"])
    deliver(b, topic, ["b1"])
    deliver(a, topic, ["a2"])
    a.abort_transaction(30)
    b.commit_transaction(30)
    env.settled(lambda: same(env.ends(topic), (5, 5)))
    assert env.values(topic) == ["b1"]
    assert env.values(topic, "read_uncommitted") == ["a1", "b1", "a2"]


def test_open_transaction_holds_back_plain_records_behind_it(env):
    """M9: the last stable offset is exclusive, and ListOffsets(latest) depends on the isolation level."""
    topic = env.topic()
    deliver(env.producer(), topic, ["plain 0"])
    producer = env.transactional()
    producer.begin_transaction()
    deliver(producer, topic, ["txn 1"])
    deliver(env.producer(), topic, ["plain 2"])
    assert env.ends(topic) == (1, 3)
    assert env.values(topic) == ["plain 0"]
    assert env.values(topic, "read_uncommitted") == ["plain 0", "txn 1", "plain 2"]
    producer.commit_transaction(30)
    env.settled(lambda: same(env.ends(topic), (4, 4)))
    assert env.values(topic) == ["plain 0", "txn 1", "plain 2"]


def test_waiting_reader_gets_the_data_at_the_commit(env):
    """A reader that is parked at the last stable offset is woken by the commit, not by its poll interval."""
    topic = env.topic()
    consumer = env.consumer(fetch_wait_max_ms=50000)
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    producer = env.transactional()
    producer.begin_transaction()
    deliver(producer, topic, ["held back"])
    assert consumer.poll(1) is None
    committed = threading.Timer(0.5, lambda: producer.commit_transaction(30))
    committed.start()
    started = time.monotonic()
    message = consumer.poll(45)
    waited = time.monotonic() - started
    committed.join()
    assert message is not None and message.value() == b"held back"
    assert waited < 25, f"it took {waited:.1f} s, the poll interval is 50 s"


def test_raw_readers_see_aborted_records(env):
    topic = env.topic()
    producer = env.transactional()
    producer.begin_transaction()
    deliver(producer, topic, ["aborted"])
    producer.abort_transaction(30)
    env.settled(lambda: same(env.ends(topic), (2, 2)))
    assert env.values(topic, "read_uncommitted") == ["aborted"]
    assert env.values(topic) == []


def test_many_aborted_transactions_between_good_ones(env):
    topic = env.topic()
    producer = env.transactional()
    good = []
    for number in range(60):
        producer.begin_transaction()
        deliver(producer, topic, [f"{number}", f"{number} again"])
        if number % 3 == 0:
            good += [f"{number}", f"{number} again"]
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    env.settled(lambda: same(env.ends(topic), (180, 180)))
    assert env.values(topic) == good
    assert env.values(topic, start=91) == [value for value in good if int(value.split()[0]) * 3 + 0 >= 91 or value == "30 again"]


def test_commit_over_partitions_and_topics_is_whole(env):
    topics = [env.topic(partitions=4) for _ in range(2)]
    producer = env.transactional()
    for outcome in ("commit", "abort", "commit"):
        producer.begin_transaction()
        for topic in topics:
            for partition in range(4):
                producer.produce(topic, outcome, partition=partition)
        producer.flush(30)
        (producer.commit_transaction if outcome == "commit" else producer.abort_transaction)(30)

    def check():
        for topic in topics:
            assert env.values(topic, partitions=4) == ["commit"] * 8

    env.settled(check)


def test_empty_transactions_end(env):
    """A13: nothing was produced; then an enrolled partition of which every record was purged is no problem either."""
    topic = env.topic()
    producer = env.transactional()
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        end(30)
    producer.begin_transaction()
    deliver(producer, topic, ["x"])
    producer.commit_transaction(30)
    env.settled(lambda: same(env.values(topic), ["x"]))


def test_zombie_is_fenced(env):
    """A14: a second producer takes over the id; the first one's open records vanish and it can do nothing more."""
    topic = env.topic()
    name = env.fresh("tx")
    zombie = env.transactional(name)
    zombie.begin_transaction()
    deliver(zombie, topic, ["zombie"])
    assert env.ends(topic) == (0, 1)
    successor = env.transactional(name)
    eventually(lambda: same(env.ends(topic), (2, 2)), seconds=1 if env.is_tidemark else 10)
    zombie.produce(topic, "late", partition=0)
    error = rejected(lambda: zombie.commit_transaction(30))
    assert error.fatal() or error.code() in (ck.KafkaError._FENCED, ck.KafkaError.INVALID_PRODUCER_EPOCH), error
    successor.begin_transaction()
    deliver(successor, topic, ["successor"])
    successor.commit_transaction(30)
    env.settled(lambda: same(env.values(topic), ["successor"]))
    assert "late" not in env.values(topic, "read_uncommitted")


def test_too_long_timeout_is_refused(env):
    """A15: transaction.max.timeout.ms is 900000 by default."""
    producer = env.transactional(init=False, transaction_timeout_ms=900001)
    error = rejected(lambda: producer.init_transactions(30))
    assert error.code() == ck.KafkaError.INVALID_TRANSACTION_TIMEOUT, error
    env.transactional(transaction_timeout_ms=900000)


def test_silent_transaction_times_out(env):
    """A16: the broker aborts it by itself; the late commit fails; the id works again at once."""
    needs_confluent()
    settings = {} if env.is_tidemark else {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    with env.private(settings):
        topic = env.topic()
        name = env.fresh("tx")
        producer = env.transactional(name, transaction_timeout_ms=10000)
        producer.begin_transaction()
        started = time.monotonic()
        deliver(producer, topic, ["late"])
        assert env.ends(topic) == (0, 1)
        eventually(lambda: same(env.ends(topic), (2, 2)), seconds=60)
        waited = time.monotonic() - started
        assert 8 < waited < 40, f"aborted after {waited:.1f} s, the timeout is 10 s"
        error = rejected(lambda: producer.commit_transaction(30))
        assert error.fatal() or error.txn_requires_abort(), error
        assert env.values(topic) == []
        again = env.transactional(name)
        again.begin_transaction()
        deliver(again, topic, ["again"])
        again.commit_transaction(30)
        env.settled(lambda: same(env.values(topic), ["again"]))


def test_offsets_are_part_of_the_transaction(env):
    """M7, M16: committed with it, and absent when it is aborted."""
    source, target = env.topic(), env.topic(partitions=2)
    group = env.fresh("g")
    deliver(env.producer(), source, [str(n) for n in range(100)])
    consumer = env.consumer(group_id=group)
    consumer.assign([ck.TopicPartition(source, 0, 0)])
    producer = env.transactional()

    def transaction(offset, end):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(target, str(offset), partition=partition)
        producer.send_offsets_to_transaction(
            [ck.TopicPartition(source, 0, offset)], consumer.consumer_group_metadata(), 30
        )
        end(30)

    transaction(10, producer.abort_transaction)
    assert env.committed(group, source) == ck.OFFSET_INVALID
    transaction(43, producer.commit_transaction)
    env.settled(lambda: same(env.committed(group, source), 43))
    transaction(77, producer.abort_transaction)
    assert env.committed(group, source) == 43
    env.settled(lambda: same(env.values(target, partitions=2), ["43", "43"]))


def test_pending_offsets_make_committed_readers_wait(env):
    """A19: OffsetFetch with requireStable answers UNSTABLE_OFFSET_COMMIT until the transaction ends; librdkafka
    asks that way in read_committed and tries again. Without it the last committed offset comes at once."""
    source = env.topic(partitions=2)
    group = env.fresh("g")
    consumer = env.consumer(group_id=group)
    consumer.commit(
        offsets=[ck.TopicPartition(source, 0, 10), ck.TopicPartition(source, 1, 11)], asynchronous=False
    )
    producer = env.transactional()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([ck.TopicPartition(source, 0, 43)], consumer.consumer_group_metadata(), 30)
    assert env.committed(group, source, isolation="read_uncommitted") == 10
    assert env.committed(group, source, partition=1) == 11, "a partition without a pending offset is not held up"
    error = rejected(lambda: env.committed(group, source, seconds=1.5))
    assert error.code() in (ck.KafkaError._TIMED_OUT, ck.KafkaError.UNSTABLE_OFFSET_COMMIT), error
    ended = threading.Timer(0.5, lambda: producer.commit_transaction(30))
    ended.start()
    assert env.committed(group, source, seconds=15) == 43
    ended.join()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([ck.TopicPartition(source, 0, 99)], consumer.consumer_group_metadata(), 30)
    producer.abort_transaction(30)
    env.settled(lambda: same(env.committed(group, source), 43))


def test_late_group_member_cannot_commit_in_a_transaction(env):
    """KIP-447: the partitions went to another member; offsets that carry the old generation are refused."""
    source, target = env.topic(), env.topic()
    group = env.fresh("g")
    deliver(env.producer(), source, ["1"])
    old = env.consumer(group_id=group, session_timeout_ms=6000)
    old.subscribe([source])
    eventually(lambda: same(old.poll(1) is not None, True), seconds=30)
    metadata_of_the_past = old.consumer_group_metadata()
    producer = env.transactional()
    producer.begin_transaction()
    producer.produce(target, "from the past", partition=0)
    old.close()
    new = env.consumer(group_id=group)
    new.subscribe([source])
    eventually(lambda: same(new.poll(1) is not None, True), seconds=30)
    error = rejected(
        lambda: producer.send_offsets_to_transaction([ck.TopicPartition(source, 0, 1)], metadata_of_the_past, 30)
    )
    assert error.txn_requires_abort(), error
    producer.abort_transaction(30)
    assert env.committed(group, source) == ck.OFFSET_INVALID
    env.settled(lambda: same(env.values(target), []))


def test_connections_cut_within_a_transaction(env):
    """M18: every connection is cut after half of the records; the client reconnects and the commit is whole."""
    needs_confluent()
    with env.private(proxied=True) as (_, proxy):
        topic = env.topic()
        producer = env.transactional()
        producer.begin_transaction()
        deliver(producer, topic, [str(n) for n in range(5)])
        assert proxy.cut() > 0
        deliver(producer, topic, [str(n) for n in range(5, 10)])
        proxy.cut()
        producer.commit_transaction(30)
        env.settled(lambda: same(env.values(topic), [str(n) for n in range(10)]))


def test_commit_whose_answer_is_lost_is_asked_again(env):
    """A12: the client never hears that EndTxn succeeded and asks again: no second marker, the same answer."""
    needs_confluent()
    with env.private(proxied=True) as (_, proxy):
        topic = env.topic()
        producer = env.transactional(socket_timeout_ms=2000, request_timeout_ms=1000)
        for number in range(3):
            producer.begin_transaction()
            deliver(producer, topic, [str(number)])
            proxy.swallow_answers = True
            healed = threading.Timer(1.0, lambda: (setattr(proxy, "swallow_answers", False), proxy.cut()))
            healed.start()
            until_decided(lambda: producer.commit_transaction(10))
            healed.join()
        env.settled(lambda: same(env.values(topic), ["0", "1", "2"]))
        if env.is_tidemark:  # Kafka sends markers to itself through the proxy, loses the answer and writes them twice
            assert env.ends(topic) == (6, 6)


def until_decided(call, seconds=60):
    """Repeats a transactional call for as long as librdkafka calls its error retriable."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except ck.KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
