"""Writes what a log can hold: every codec, plain, idempotent and transactional batches, aborted transactions that span
segments, offsets of groups. Usage: write.py HOST:PORT ROUND"""

import os
import sys

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "dumped"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def wait(futures):
    for future in futures.values():
        try:
            future.result(30)
        except Exception as error:
            if "already exists" not in str(error):
                raise


def main(bootstrap, round_number):
    base = {"bootstrap.servers": bootstrap}
    admin = AdminClient(base)
    wait(admin.create_topics([NewTopic(TOPIC, 3, 1), NewTopic("stamped", 1, 1, config={
        "message.timestamp.type": "LogAppendTime"})], operation_timeout=30))

    failed = []

    def report(error, _message):
        if error is not None:
            failed.append(str(error))

    for codec in CODECS:
        for idempotent in (False, True):
            producer = Producer({**base, "compression.type": codec, "enable.idempotence": idempotent,
                                 "linger.ms": 1, "batch.num.messages": 20})
            for n in range(300):
                value = (f"{codec} {round_number} {n} ".encode() + os.urandom(1500))
                producer.produce(TOPIC, value, key=str(n % 7), partition=n % 3,
                                 timestamp=1700000000000 + (n * 7919) % 100000, headers={"n": str(n)}, on_delivery=report)
                producer.produce("stamped", value[:100], on_delivery=report)
                producer.poll(0)
            assert producer.flush(60) == 0

    # One long transaction over many short ones, so that it ends, aborted, some segments after its beginning.
    long = Producer({**base, "transactional.id": f"long-{round_number}", "linger.ms": 1})
    long.init_transactions(30)
    long.begin_transaction()
    for partition in range(3):
        long.produce(TOPIC, b"long", partition=partition, on_delivery=report)
    long.flush(30)
    short = Producer({**base, "transactional.id": "short", "linger.ms": 1, "compression.type": "zstd"})
    short.init_transactions(30)
    consumer = Consumer({**base, "group.id": "group", "enable.auto.commit": False})
    for n in range(40):
        short.begin_transaction()
        for partition in range(3):
            short.produce(TOPIC, f"short {n} ".encode() + os.urandom(20000), partition=partition, on_delivery=report)
        short.send_offsets_to_transaction([TopicPartition(TOPIC, 0, n)], consumer.consumer_group_metadata(), 30)
        if n % 3 == 0:
            # What is still in the client's queue an abort throws away: it is to be aborted in the log.
            short.flush(30)
            short.abort_transaction(30)
        else:
            short.commit_transaction(30)
    long.abort_transaction(30)
    consumer.close()
    assert not failed, failed[:5]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
