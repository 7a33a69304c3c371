"""SIGKILL and clean restarts: what was promised is still there."""

import random
import re
import threading
import time

from harness import Broker, ck, deliver, eventually, needs_confluent
from test_transactions import rejected, same, until_decided


def test_acknowledged_records_survive(env):
    needs_confluent()
    with env.private() as broker:
        topic = env.topic(partitions=3)
        expected = []
        producer = env.producer()
        for restart in range(3):
            values = [f"{restart}.{n}" for n in range(200)]
            deliver(producer, topic, values, partition=restart, seconds=60)
            expected += values
            broker.restart_after_kill()
        assert sorted(env.values(topic, partitions=3, seconds=60)) == sorted(expected)


def test_kill_during_commit_leaves_all_or_none(env):
    """The broker dies at a random moment around EndTxn."""
    all_or_none(env, rounds=20 if env.is_tidemark else 4, kill_after=lambda: 0, at_commit=True)


def test_kill_at_any_point_leaves_all_or_none(env):
    """A9: the broker dies anywhere between begin and commit."""
    all_or_none(env, rounds=15 if env.is_tidemark else 3, kill_after=lambda: random.uniform(0, 0.02), at_commit=False)


def all_or_none(env, rounds, kill_after, at_commit):
    """Transactions over four partitions and a group's offset, with a kill in each. Whatever the client is told in the
    end: the partitions and the offset agree, and a commit that returned is there."""
    needs_confluent()
    with env.private() as broker:
        topic, source = env.topic(partitions=4), env.topic()
        group, name = env.fresh("g"), env.fresh("tx")
        outside = env.consumer(group_id=group)  # never joins: the offsets are guarded by the transaction alone
        outcomes, producer = {}, env.transactional(name)
        for number in range(1, rounds + 1):
            asked = False
            killer = threading.Timer(kill_after() + random.uniform(0, 0.004), broker.restart_after_kill)
            try:
                producer.begin_transaction()
                if not at_commit:
                    killer.start()
                for partition in range(4):
                    producer.produce(topic, str(number), partition=partition)
                producer.flush(60)
                position = [ck.TopicPartition(source, 0, number)]
                until_decided(
                    lambda: producer.send_offsets_to_transaction(position, outside.consumer_group_metadata(), 10)
                )
                if at_commit:
                    killer.start()
                asked = True
                until_decided(lambda: producer.commit_transaction(10))
                outcomes[number] = "committed"
            except ck.KafkaException as error:
                outcomes[number] = f"unknown: {error}" if asked else f"failed: {error}"
                producer = env.transactional(name)
            killer.join()
        seen = {}
        for partition, _, value in eventually(lambda: env.read(topic, partitions=4), seconds=60):
            seen.setdefault(int(value), set()).add(partition)
        for number, outcome in outcomes.items():
            parts = seen.get(number, set())
            assert parts in (set(), {0, 1, 2, 3}), f"torn: transaction {number} is in {parts}"
            assert parts or outcome != "committed", f"lost: transaction {number} had committed"
            assert not parts or not outcome.startswith("failed"), f"transaction {number} was never committed, and is there"
        assert eventually(lambda: env.committed(group, source), seconds=30) == max(seen), (seen, outcomes)
        assert "committed" in outcomes.values(), outcomes


def test_open_transaction_survives_a_kill(env):
    """A9: the broker dies between the first record and the rest; the client goes on with the same transaction and
    commits, and both halves and the offsets are there."""
    needs_confluent()
    with env.private() as broker:
        topic, source = env.topic(), env.topic()
        group = env.fresh("g")
        outside = env.consumer(group_id=group)
        producer = env.transactional()
        for number in range(3):
            producer.begin_transaction()
            deliver(producer, topic, [f"{number} before"])
            broker.restart_after_kill()
            assert eventually(lambda: env.ends(topic), seconds=60) == (3 * number, 3 * number + 1)
            deliver(producer, topic, [f"{number} after"], seconds=60)
            position = [ck.TopicPartition(source, 0, 43 + number)]
            until_decided(
                lambda: producer.send_offsets_to_transaction(position, outside.consumer_group_metadata(), 10)
            )
            until_decided(lambda: producer.commit_transaction(10))
            env.settled(lambda: same(env.ends(topic), (3 * number + 3, 3 * number + 3)))
            env.settled(lambda: same(env.committed(group, source), 43 + number))
        expected = [f"{number} {when}" for number in range(3) for when in ("before", "after")]
        assert env.values(topic) == expected


def test_open_transaction_still_times_out_after_a_kill(env):
    needs_confluent()
    settings = {} if env.is_tidemark else {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    with env.private(settings) as broker:
        topic = env.topic()
        producer = env.transactional(transaction_timeout_ms=10000)
        producer.begin_transaction()
        deliver(producer, topic, ["silent"])
        broker.restart_after_kill()
        eventually(lambda: same(env.ends(topic), (2, 2)), seconds=45)
        assert env.values(topic) == []
        error = rejected(lambda: until_decided(lambda: producer.commit_transaction(10)))
        assert error.fatal() or error.txn_requires_abort(), error


def test_stable_offset_never_goes_back_or_forward(env):
    """A8: while the broker restarts again and again, every answer is 100 or an error that clients retry."""
    needs_confluent()
    restarts = 10 if env.is_tidemark else 2
    with env.private() as broker:
        topic = env.topic()
        deliver(env.producer(), topic, [str(n) for n in range(100)])
        producer = env.transactional(transaction_timeout_ms=600000)
        producer.begin_transaction()
        deliver(producer, topic, ["open"])
        answers, stop = [], threading.Event()
        asker = env.consumer("read_committed", socket_timeout_ms=2000)

        def ask():
            while not stop.is_set():
                try:
                    answers.append(asker.get_watermark_offsets(ck.TopicPartition(topic, 0), 2)[1])
                except ck.KafkaException:
                    pass
                time.sleep(0.002)

        thread = threading.Thread(target=ask)
        thread.start()
        for _ in range(restarts):
            before = len(answers)
            eventually(lambda: enough(len(answers) - before), seconds=60)
            broker.restart_after_kill()
        before = len(answers)
        eventually(lambda: enough(len(answers) - before), seconds=60)
        stop.set()
        thread.join()
        assert set(answers) == {100}, sorted(set(answers))


def enough(answers):
    assert answers >= 20, answers


def test_aborted_records_stay_hidden_after_a_kill(env):
    needs_confluent()
    with env.private() as broker:
        topic = env.topic()
        producer = env.transactional()
        for outcome in ("good", "bad", "good"):
            producer.begin_transaction()
            deliver(producer, topic, [outcome])
            (producer.commit_transaction if outcome == "good" else producer.abort_transaction)(30)
        env.settled(lambda: same(env.values(topic), ["good", "good"]))
        broker.restart_after_kill()
        assert env.values(topic, seconds=60) == ["good", "good"]
        assert env.values(topic, "read_uncommitted") == ["good", "bad", "good"]


def test_zombie_is_still_fenced_after_a_kill(env):
    needs_confluent()
    with env.private() as broker:
        topic, name = env.topic(), env.fresh("tx")
        zombie = env.transactional(name)
        successor = env.transactional(name)
        broker.restart_after_kill()
        zombie.begin_transaction()
        zombie.produce(topic, "zombie", partition=0)
        rejected(lambda: until_decided(lambda: zombie.commit_transaction(10)))
        successor.begin_transaction()
        deliver(successor, topic, ["successor"], seconds=60)
        until_decided(lambda: successor.commit_transaction(10))
        env.settled(lambda: same(env.values(topic), ["successor"]))


def test_identity_is_stable_over_restarts(env):
    """Cluster id, node id, topics and offsets are the same after a clean stop and after SIGKILL."""
    needs_confluent()
    with env.private() as broker:
        topic = env.topic(partitions=3)
        deliver(env.producer(), topic, ["x"])

        def identity():
            admin = env.admin()
            described = admin.describe_cluster(request_timeout=20).result(20)
            partitions = len(admin.list_topics(topic, 20).topics[topic].partitions)
            topics = admin.describe_topics(ck.TopicCollection([topic]), request_timeout=20)[topic].result(20)
            return described.cluster_id, [n.id for n in described.nodes], partitions, str(topics.topic_id)

        before = identity()
        assert before[0], "the cluster has an id"
        broker.restart_after_kill()
        assert eventually(identity, seconds=60) == before
        code = broker.stop()
        assert code == 0 or not env.is_tidemark, f"SIGTERM ended it with {code}"
        broker.start()
        assert eventually(identity, seconds=60) == before
        assert env.values(topic) == ["x"]


def test_second_broker_on_the_same_data_is_refused(env):
    env.only_tidemark("its own message")
    with env.private() as broker:
        second = Broker(env.kind, env.command, data=broker.data)
        try:
            second.start()
            raise AssertionError("two brokers share one data directory")
        except RuntimeError:
            assert second.process.returncode == 1, second.process.returncode
            assert re.search(re.escape(str(broker.data)), second.text()), second.text()
        finally:
            second.stop()
            second.remove()
