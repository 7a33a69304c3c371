"""Consumer groups of the classic protocol, through confluent-kafka (librdkafka)."""

import subprocess
import sys
import time

from harness import ck, deliver, eventually, needs_confluent


class Member:
    """A consumer whose assignment can be asked for; it must be polled to take part. Its session outlasts what a test
    waits for: a partition that moves sooner was left, not lost."""

    def __init__(self, env, group, topic, **options):
        self.assigned = set()
        self.consumer = env.consumer(group_id=group, session_timeout_ms=60000, heartbeat_interval_ms=500, **options)
        self.seen = []
        self.consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke)

    def _assign(self, consumer, partitions):
        self.assigned |= {p.partition for p in partitions}

    def _revoke(self, consumer, partitions):
        self.assigned -= {p.partition for p in partitions}

    def poll(self, seconds=0.1):
        message = self.consumer.poll(seconds)
        if message is not None and not message.error():
            self.seen.append(message.value().decode())


def poll_until(members, condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, [m.assigned for m in members]
        for member in members:
            member.poll()


def test_one_member_gets_everything(env):
    topic = env.topic(partitions=4)
    member = Member(env, env.fresh("g"), topic)
    poll_until([member], lambda: member.assigned == {0, 1, 2, 3})
    for partition in range(4):
        deliver(env.producer(), topic, [f"p{partition}"], partition=partition)
    poll_until([member], lambda: sorted(member.seen) == ["p0", "p1", "p2", "p3"])


def test_two_members_share_and_one_takes_over(env):
    topic = env.topic(partitions=4)
    group = env.fresh("g")
    first = Member(env, group, topic)
    poll_until([first], lambda: first.assigned == {0, 1, 2, 3})
    second = Member(env, group, topic)
    both = [first, second]
    poll_until(both, lambda: len(first.assigned) == 2 and len(second.assigned) == 2)
    assert first.assigned | second.assigned == {0, 1, 2, 3}
    second.consumer.close()
    poll_until([first], lambda: first.assigned == {0, 1, 2, 3})


def test_cooperative_members_share(env):
    topic = env.topic(partitions=4)
    group = env.fresh("g")
    options = {"partition_assignment_strategy": "cooperative-sticky"}
    needs_confluent()

    class Cooperative(Member):
        def _assign(self, consumer, partitions):
            super()._assign(consumer, partitions)
            consumer.incremental_assign(partitions)

        def _revoke(self, consumer, partitions):
            super()._revoke(consumer, partitions)
            consumer.incremental_unassign(partitions)

    first = Cooperative(env, group, topic, **options)
    poll_until([first], lambda: first.assigned == {0, 1, 2, 3})
    second = Cooperative(env, group, topic, **options)
    poll_until([first, second], lambda: len(first.assigned) == 2 and len(second.assigned) == 2)
    assert first.assigned | second.assigned == {0, 1, 2, 3}


MEMBER_IN_A_PROCESS = """
import sys, confluent_kafka as ck
address, group, topic = sys.argv[1:]
consumer = ck.Consumer({"bootstrap.servers": address, "group.id": group, "session.timeout.ms": 10000,
                        "heartbeat.interval.ms": 500, "auto.offset.reset": "earliest"})
consumer.subscribe([topic], on_assign=lambda c, partitions: print("assigned", len(partitions), flush=True))
while True:
    consumer.poll(0.5)
"""


def test_crashed_member_is_replaced_after_its_session(env):
    """A member gets SIGKILL: nobody says goodbye, its partitions move when its session has run out (10 s)."""
    topic = env.topic(partitions=4)
    group = env.fresh("g")
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER_IN_A_PROCESS, env.address, group, topic], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline().split() == ["assigned", "4"]
        survivor = Member(env, group, topic)
        poll_until([survivor], lambda: len(survivor.assigned) == 2)
        process.kill()
        process.wait()
        killed = time.monotonic()
        poll_until([survivor], lambda: survivor.assigned == {0, 1, 2, 3}, seconds=40)
        waited = time.monotonic() - killed
        assert 5 < waited < 35, f"the partitions moved after {waited:.1f} s, the session lasts 10 s"
    finally:
        process.kill()
        process.wait()


def test_committed_offsets_are_where_a_group_goes_on(env):
    topic = env.topic()
    group = env.fresh("g")
    deliver(env.producer(), topic, [str(n) for n in range(10)])
    first = Member(env, group, topic)
    poll_until([first], lambda: len(first.seen) >= 4)
    first.consumer.commit(offsets=[ck.TopicPartition(topic, 0, 4)], asynchronous=False)
    first.consumer.close()
    second = Member(env, group, topic)
    poll_until([second], lambda: len(second.seen) >= 6)
    assert second.seen == ["4", "5", "6", "7", "8", "9"]


def test_automatic_commits(env):
    topic = env.topic()
    group = env.fresh("g")
    deliver(env.producer(), topic, ["a", "b", "c"])
    member = Member(env, group, topic, enable_auto_commit=True, auto_commit_interval_ms=100)
    poll_until([member], lambda: len(member.seen) == 3)
    member.consumer.close()
    eventually(lambda: is_committed(env, group, topic, 3))


def is_committed(env, group, topic, offset):
    got = env.committed(group, topic)
    assert got == offset, got


def test_group_goes_on_after_a_kill_of_the_broker(env):
    """Offsets and membership survive SIGKILL: members go on where they were, nothing is delivered to the group twice
    that was committed."""
    needs_confluent()
    with env.private() as broker:
        topic = env.topic(partitions=2)
        group = env.fresh("g")
        producer = env.producer(enable_idempotence=True)
        deliver(producer, topic, [f"before {n}" for n in range(5)])
        member = Member(env, group, topic)
        poll_until([member], lambda: len(member.seen) == 5)
        member.consumer.commit(asynchronous=False)
        for restart in range(3):
            broker.restart_after_kill()
            assert eventually(lambda: env.committed(group, topic), seconds=60) == 5 + restart
            deliver(producer, topic, [f"after {restart}"], seconds=60)
            poll_until([member], lambda: member.seen[-1] == f"after {restart}", seconds=60)
            eventually(lambda: member.consumer.commit(asynchronous=False), seconds=30)
        assert len(member.seen) == len(set(member.seen)) == 8, member.seen


def test_groups_are_listed_and_described(env):
    topic = env.topic(partitions=2)
    group = env.fresh("g")
    member = Member(env, group, topic)
    poll_until([member], lambda: member.assigned == {0, 1})
    admin = env.admin()
    listed = admin.list_consumer_groups(request_timeout=20).result(20)
    assert group in {entry.group_id for entry in listed.valid}, listed
    described = admin.describe_consumer_groups([group], request_timeout=20)[group].result(20)
    assert described.state == ck.ConsumerGroupState.STABLE
    assert len(described.members) == 1
    partitions = {p.partition for p in described.members[0].assignment.topic_partitions}
    assert partitions == {0, 1}
