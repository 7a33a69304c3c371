"""Each record once and in order, whatever happens to the connection."""

import random
import threading
import time

from harness import ProduceAnswers, ck, needs_confluent


def test_batches_resent_after_a_lost_connection(env):
    """Several batches are in flight, stored, and their answers lost: the client sends all of them again."""
    needs_confluent()
    with env.private(proxied=True) as (_, proxy):
        topic = env.topic(partitions=2)
        producer = env.producer(
            enable_idempotence=True,
            max_in_flight_requests_per_connection=5,
            batch_num_messages=10,
            linger_ms=1,
            message_timeout_ms=60000,
        )
        errors = []
        stop = threading.Event()

        def disturb():
            while not stop.is_set():
                time.sleep(0.05)
                proxy.swallow_answers = True  # the broker stores, the client does not hear of it
                time.sleep(0.05)
                proxy.cut()
                proxy.swallow_answers = False
                time.sleep(0.15)

        disturber = threading.Thread(target=disturb)
        disturber.start()
        for number in range(3000):
            producer.produce(
                topic, str(number), partition=number % 2, on_delivery=lambda e, m: errors.append(e) if e else None
            )
            producer.poll(0)
            if number % 30 == 0:
                time.sleep(0.01)
        left = producer.flush(60)
        stop.set()
        disturber.join()
        assert not errors and left == 0, (errors[:1], left)
        for partition in range(2):
            got = [int(value) for p, _, value in env.read(topic, partitions=2) if p == partition]
            assert got == list(range(partition, 3000, 2)), first_difference(got, list(range(partition, 3000, 2)))


def first_difference(got, expected):
    for index, (left, right) in enumerate(zip(got, expected)):
        if left != right:
            return f"at {index}: {left} instead of {right}"
    return f"{len(got)} records instead of {len(expected)}"


def test_producer_outlives_kills_of_the_broker(env):
    """A2: acknowledged exactly once through five SIGKILLs, in order."""
    needs_confluent()
    with env.private() as broker:
        topic = env.topic()
        producer = env.producer(
            enable_idempotence=True, batch_num_messages=20, linger_ms=1, message_timeout_ms=120000
        )
        errors, count = [], 0
        deadline = time.monotonic() + 150
        for kill in range(5):
            until = time.monotonic() + 0.4
            while time.monotonic() < until:
                producer.produce(topic, str(count), partition=0, on_delivery=lambda e, m: errors.append(e) if e else None)
                producer.poll(0)
                count += 1
                if count % 20 == 0:
                    time.sleep(0.005)
            broker.restart_after_kill()
        left = producer.flush(max(1, deadline - time.monotonic()))
        assert not errors and left == 0, (errors[:1], left)
        got = [int(value) for value in env.values(topic, seconds=60)]
        assert got == list(range(count)), first_difference(got, list(range(count)))


def test_a2_acknowledgements_are_lost_while_the_broker_dies(env):
    """A2: 10,000 numbered records with five requests in flight, through a proxy that drops answers, while the broker is
    killed twenty times at random moments. Each record is there once and in order, and no answer to a Produce is
    UNKNOWN_SERVER_ERROR, which would send the client down a path that duplicates."""
    needs_confluent()
    kills, records, partitions = 20, 10_000, 2
    seed = random.randrange(1 << 32)
    dice, heard = random.Random(seed), ProduceAnswers()
    with env.private(proxied=True, produce_answers=heard) as (broker, proxy):
        topic = env.topic(partitions)
        producer = env.producer(
            enable_idempotence=True,
            acks="all",
            max_in_flight_requests_per_connection=5,
            batch_num_messages=10,
            linger_ms=1,
            message_timeout_ms=180_000,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=100,
        )
        delivered, failed = [], []

        def report(number):
            return lambda error, message: failed.append((number, error)) if error else delivered.append(number)

        def send(numbers):
            for number in numbers:
                producer.produce(topic, str(number), partition=number % partitions, on_delivery=report(number))
                producer.poll(0)

        def wait_for(more, than):
            deadline = time.monotonic() + 30
            while more() <= than and time.monotonic() < deadline:
                producer.poll(0.001)

        for kill in range(kills):
            # The client is back at work; from then on answers get lost, while more records leave.
            first, last = records * kill // kills, records * (kill + 1) // kills
            middle = dice.randrange(first, last)
            before, lost = heard.answers, heard.swallowed
            send(range(first, middle + 1))
            wait_for(lambda: heard.answers, before)
            proxy.swallow_answers = True
            send(range(middle + 1, last))
            if kill % 2:
                wait_for(lambda: heard.swallowed, lost)
            time.sleep(dice.uniform(0, 0.02))
            if kill % 5 == 4:
                # The broker lives, and only the answers are lost.
                proxy.cut()
                proxy.swallow_answers = False
                time.sleep(dice.uniform(0, 0.1))
            broker.kill()
            proxy.cut()
            proxy.swallow_answers = False
            broker.start()
        left = producer.flush(120)
        what = f"seed {seed}: {len(delivered)} delivered, {left} left, {heard.answers} answers, codes {dict(heard.codes)}"
        assert not failed and left == 0, f"{what}; not delivered: {failed[:1]}"
        got = env.read(topic, partitions=partitions, seconds=60)
        for partition in range(partitions):
            numbers = [int(value) for p, _, value in got if p == partition]
            expected = list(range(partition, records, partitions))
            assert numbers == expected, f"{what}; partition {partition}: {first_difference(numbers, expected)}"
        assert sorted(delivered) == list(range(records)), what
        assert -1 not in heard.codes, what
        assert heard.swallowed > 0, f"{what}; no answer was lost, so that nothing was tested"


def test_producer_ids_are_never_given_out_twice(env):
    """M4 through a stock client: instances with idempotence write into one partition across restarts; if two of
    them had the same id, the second one's first batches would be taken for repeats of the first one's."""
    needs_confluent()
    with env.private() as broker:
        topic = env.topic()
        expected = []
        for restart in range(3):
            for instance in range(5):
                producer = env.producer(enable_idempotence=True)
                value = f"{restart}.{instance}"
                producer.produce(topic, value, partition=0)
                assert producer.flush(60) == 0
                expected.append(value)
            broker.restart_after_kill()
        assert env.values(topic, seconds=60) == expected
        assert ck is not None
