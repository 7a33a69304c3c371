#!/usr/bin/env python3
"""A Kafka Streams application with exactly_once_v2 (Streams.java beside this file) under kill -9.

    tests/jvm/streams.py --broker COMMAND --jars FOLDER --dir FOLDER [--seconds S] [--rate N] [--seed N] [--modes M]

Three instances of the application work while a producer writes 0, 1, 2 ... for each of a hundred keys. In the first mode
(`instances`) an instance is killed with SIGKILL every few seconds, in the second (`both`) an instance and the broker in
turns; each lasts S seconds, on a broker of its own. Then the application may finish, and everything is read from the begin:
per key every number once and in order, the aggregation's count of each right, and the totals behind the second aggregation
1, 2, 3 ... without a gap up to the number of records. A reader that was there all the time must have seen the same. The
last line:

    streams: records=N instance_kills=N broker_kills=N lost=0 duplicated=0 out_of_order=0

Exit 1 when anything is wrong; when in a mode more instances and threads of them than one, and one for 20 kills, ended by
themselves and were replaced; or below the least load: in each mode 300 records written and 100 through all stages a second
that S asks for, a kill of an instance every 15 seconds, and in the second mode one of the broker every 15.
"""

import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

from lib import (
    Broker,
    Faults,
    Java,
    Numbers,
    all_ended,
    ck,
    compile_java,
    consumer,
    create_topics,
    own_ends_within_bound,
    parser_of,
    read_all,
)

HERE = Path(__file__).resolve().parent
KEYS, PARTITIONS, INSTANCES, BUCKETS = 100, 4, 3, 7
SECONDS_BETWEEN_KILLS = (4.0, 7.0)
# While a dead member is waited for, an application with exactly_once_v2 commits nothing: with Kafka's 6 s (which is
# group.min.session.timeout.ms) it would do little else. The last instance is a static member: the group does not notice that
# it was away.
SESSION_MS, STATIC_SESSION_MS = 2000, 10000
SECONDS_TO_FINISH = 300
LEAST_RECORDS_PER_SECOND = 300
LEAST_FINISHED_PER_SECOND = 100


class Producer(threading.Thread):
    """Writes the next number of each key in turn, at a rate, until told to end; then all of it has arrived."""

    def __init__(self, address, rate):
        super().__init__(daemon=True)
        self.rate, self.count, self.over, self.error = rate, 0, threading.Event(), None
        self.producer = ck.Producer({
            "bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, "log_level": 2,
            "delivery.timeout.ms": 600_000, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500,
            "metadata.recovery.strategy": "none", "error_cb": lambda error: None,
        })  # fmt: skip

    def run(self):
        started = time.monotonic()
        while not self.over.wait(0.01):
            wanted = int((time.monotonic() - started) * self.rate)
            # What was not sent while the broker was away is not made up for: the rate is a bound.
            if wanted - self.count > self.rate:
                started += (wanted - self.count) / self.rate
                continue
            while self.count < wanted and len(self.producer) < 50_000:
                key, number = self.count % KEYS, self.count // KEYS
                self.producer.produce("input", str(number), key=f"k{key}", on_delivery=self.delivered)
                self.count += 1
            self.producer.poll(0)
        if left := self.producer.flush(300):
            self.error = f"{left} records were not acknowledged"

    def delivered(self, error, _message):
        if error is not None:
            self.error = str(error)


class Watcher(threading.Thread):
    """A read_committed reader that is there all the time."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.reader = consumer(address, "watcher")
        self.reader.assign([ck.TopicPartition(topic, partition, 0) for topic in ("output", "totals")
                            for partition in range(PARTITIONS)])  # fmt: skip
        self.seen = defaultdict(list)
        self.counts = defaultdict(int)
        self.over, self.error = threading.Event(), None

    def run(self):
        while not self.over.is_set():
            for message in self.reader.consume(5000, 0.2):
                if message.error() is None:
                    where = (message.topic(), message.partition())
                    self.seen[where].append((message.offset(), message.key(), message.value()))
                    self.counts[message.topic()] += 1
                elif not message.error().retriable() and message.error().code() != ck.KafkaError._PARTITION_EOF:
                    self.error = str(message.error())
        self.reader.close()

    def end(self):
        self.over.set()
        self.join()


def java_hash(text):
    value = 0
    for letter in text:
        value = (value * 31 + ord(letter)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def check(address, count, watcher, numbers):
    """Reads everything and compares it with what was written."""
    per_key = {f"k{key}": (count - key + KEYS - 1) // KEYS for key in range(KEYS)}
    wrong = 0
    written, of_key = read_all(address, "input", PARTITIONS), defaultdict(list)
    for message in (message for partition in written for message in partition):
        of_key[message.key().decode()].append(int(message.value()))
    for key, total in per_key.items():
        numbers.check(f"input {key}", of_key[key], total)

    output, of_key = read_all(address, "output", PARTITIONS), defaultdict(list)
    for message in (message for partition in output for message in partition):
        of_key[message.key().decode()].append([int(word) for word in message.value().split()])
    for key, total in per_key.items():
        told = of_key.pop(f"device-{key}", [])
        numbers.check(f"output {key}", [number for number, _, _ in told], total)
        bad = [row for row in told if row[1] != row[0] + 1 or row[2] != 0]
        wrong += len(bad)
        if bad:
            numbers.example(f"output {key}: {len(bad)} counts are wrong, the first is {bad[0]}")
    wrong += len(of_key)

    buckets = defaultdict(int)
    for key, total in per_key.items():
        buckets[f"bucket-{java_hash(f'device-{key}') % BUCKETS}"] += total
    totals, of_bucket = read_all(address, "totals", PARTITIONS), defaultdict(list)
    for message in (message for partition in totals for message in partition):
        of_bucket[message.key().decode()].append(int(message.value()) - 1)
    for bucket, total in buckets.items():
        numbers.check(f"totals {bucket}", of_bucket.pop(bucket, []), total)
    wrong += len(of_bucket)

    for topic, found in (("output", output), ("totals", totals)):
        for partition, messages in enumerate(found):
            now = [(message.offset(), message.key(), message.value()) for message in messages]
            before = watcher.seen[topic, partition]
            if before != now[: len(before)] or len(before) != len(now):
                wrong += 1
                place = next((n for n, pair in enumerate(zip(before, now)) if pair[0] != pair[1]), min(len(before), len(now)))
                numbers.example(f"{topic}-{partition}: the reader that was there saw {len(before)} records, a new one sees "
                                f"{len(now)}; they part at place {place}")  # fmt: skip
    return wrong


def membership(instance):
    return [STATIC_SESSION_MS, f"instance-{instance}"] if instance == INSTANCES - 1 else [SESSION_MS]


def run(mode, options, numbers):
    """One mode, on a new broker. Returns records, kills of instances, kills of the broker, and what is wrong otherwise."""
    folder = Path(options.dir) / mode
    folder.mkdir(parents=True)
    broker = Broker("tidemark", options.broker, {
        "group.initial.rebalance.delay.ms": 500, "group.min.session.timeout.ms": 1000, "log.cleaner.backoff.ms": 3000,
    })  # fmt: skip
    broker.start()
    address = broker.address
    create_topics(address, PARTITIONS, input={}, output={}, totals={})
    instances = [
        Java(f"instance-{n}", f"{Path(options.dir) / 'classes'}:{options.jars}/*", "Streams",
             [address, "counting", folder / f"state-{n}", options.guarantee, *membership(n)], folder).start()
        for n in range(INSTANCES)
    ]  # fmt: skip
    producer, watcher = Producer(address, options.rate), Watcher(address)
    faults = Faults(instances, broker if mode == "both" else None, options.seed, SECONDS_BETWEEN_KILLS)
    wrong = []
    try:
        watcher.start()
        producer.start()
        deadline = time.monotonic() + 120
        while not watcher.counts["totals"]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the application does not work: {instances[0].tail()}")
            time.sleep(0.2)
        print(f"{mode}: all stages work; {options.seconds} s of kills from here", flush=True)
        before = watcher.counts["totals"]
        faults.start()
        ends = time.monotonic() + options.seconds
        while time.monotonic() < ends:
            time.sleep(min(10, max(0, ends - time.monotonic())))
            print(f"{mode}: written {producer.count}, output {watcher.counts['output']}, totals {watcher.counts['totals']}, "
                  f"kills {sum(i.kills for i in instances)} + {faults.broker_kills}", flush=True)  # fmt: skip
        faults.end()
        meanwhile = watcher.counts["totals"] - before
        producer.over.set()
        producer.join()
        if producer.error:
            wrong.append(f"the producer: {producer.error}")
        deadline = time.monotonic() + SECONDS_TO_FINISH
        while watcher.counts["totals"] < producer.count or watcher.counts["output"] < producer.count:
            faults.revive()
            if time.monotonic() > deadline:
                wrong.append(f"not finished after {SECONDS_TO_FINISH} s: {dict(watcher.counts)} of {producer.count}")
                break
            time.sleep(0.2)
        for instance in instances:
            if instance.stop() not in (0, 143):
                wrong.append(f"{instance.name} ended with {instance.process.returncode} when it was told to stop")
        watcher.end()
        if watcher.error:
            wrong.append(f"the reader: {watcher.error}")
        bad = check(address, producer.count, watcher, numbers)
        if bad:
            wrong.append(f"{bad} counts, keys or reads")
    finally:
        for instance in instances:
            instance.stop(5)
        broker.stop()
        (folder / "broker.log").write_text(broker.text())
        wrong += broker.panics()
        broker.remove()
    kills = sum(instance.kills for instance in instances)
    own = sum(instance.own_ends for instance in instances)
    replaced = sum(instance.log.read_text(errors="replace").count("thread replaced: ") for instance in instances)
    print(f"{mode}: records={producer.count} instance_kills={kills} broker_kills={faults.broker_kills} "
          f"threads_replaced={replaced} instances_ended_by_themselves={own}", flush=True)  # fmt: skip
    wrong += own_ends_within_bound(f"{mode}: instances and threads", own + replaced, kills + faults.broker_kills)
    least, least_kills = options.seconds * min(LEAST_RECORDS_PER_SECOND, options.rate), max(1, options.seconds // 15)
    if producer.count < least or kills < least_kills:
        wrong.append(f"too little happened: at least {least} records and {least_kills} kills of instances are asked for")
    if meanwhile < options.seconds * LEAST_FINISHED_PER_SECOND:
        wrong.append(f"too little happened: of {producer.count} records {meanwhile} went through all stages between the kills")
    if mode == "both" and faults.broker_kills < least_kills:
        wrong.append(f"too little happened: at least {least_kills} kills of the broker are asked for")
    return producer.count, kills, faults.broker_kills, wrong


def main():
    parser = parser_of(__doc__, 2000, "of kills, in each mode", "records a second")
    parser.add_argument("--modes", default="instances,both")
    parser.add_argument("--guarantee", default="exactly_once_v2",
                        help="at_least_once shows that this program notices what it looks for")  # fmt: skip
    options = parser.parse_args()
    compile_java(HERE / "Streams.java", options.jars, Path(options.dir) / "classes")
    numbers, sums, wrong = Numbers(), [0, 0, 0], []
    print(f"seed {options.seed}, {options.rate} records a second", flush=True)
    with all_ended():
        for mode in options.modes.split(","):
            *counts, more = run(mode, options, numbers)
            sums = [before + now for before, now in zip(sums, counts)]
            wrong += more
    told = numbers.tell(wrong)
    print(f"streams: records={sums[0]} instance_kills={sums[1]} broker_kills={sums[2]} {told}")
    return 1 if wrong or numbers.examples else 0


if __name__ == "__main__":
    sys.exit(main())
