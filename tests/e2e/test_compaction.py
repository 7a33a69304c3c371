"""A compacted topic with transactions, as stock clients and Kafka's own tool read it."""

import shutil
import subprocess
import time
from pathlib import Path

from harness import ROOT, Skip, ck, deliver, eventually, needs_confluent

KEYS = 10
VALUE_BYTES = 20_000
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}


def settings(env):
    eager = {"log.cleaner.backoff.ms": 200}
    if env.is_tidemark:
        # Only what a checkpoint has synced is compacted.
        eager["checkpoint.interval.ms"] = 200
    return eager


def write_transactions(env, topic, transactions):
    """Every third one is aborted; returns [(offset, key, value)] of the committed ones."""
    producer, committed = env.transactional(), []
    for number in range(transactions):
        producer.begin_transaction()
        written = []
        for n in range(KEYS):
            key, value = f"k{n}", f"{number}.{n}:".ljust(VALUE_BYTES, "x")

            def on_delivery(error, message, key=key, value=value):
                assert error is None, error
                written.append((message.offset(), key, value))

            producer.produce(topic, value, key=key, partition=0, on_delivery=on_delivery)
        assert producer.flush(60) == 0
        if number % 3 == 2 and number < transactions - 1:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            committed += written
    return committed


def keyed(env, topic, isolation="read_committed", seconds=60):
    """[(offset, key, value)] from the start to the end."""
    consumer = env.consumer(isolation, enable_partition_eof=True)
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    found, deadline = [], time.monotonic() + seconds
    while True:
        assert time.monotonic() < deadline, f"no end of {topic} within {seconds} s, after {len(found)} records"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            assert message.error().code() == ck.KafkaError._PARTITION_EOF, message.error()
            return found
        found.append((message.offset(), message.key().decode(), message.value().decode()))


def last_values(records):
    return {key: value for _, key, value in records}


def test_compacted_transactions_read_as_before(env):
    """Compaction runs under a reader; the last committed value of each key stays, at its offset; kcat agrees."""
    needs_confluent()
    with env.private(settings(env)) as broker:
        topic = env.topic(config=COMPACTED)
        committed = write_transactions(env, topic, 40)
        deliver(env.producer(enable_idempotence=True), topic, ["plain"], key="plain")
        stable, high = env.ends(topic)
        assert stable == high

        def check():
            found = keyed(env, topic)
            assert set(found) <= set(committed) | {(high - 1, "plain", "plain")}, "something else is delivered"
            assert found == sorted(found)
            expected = dict(last_values(committed), plain="plain")
            assert last_values(found) == expected, "a last value is missing"
            assert len(found) < len(committed) / 2, f"{len(found)} of {len(committed)} records are left"
            return found

        found = eventually(check, seconds=60, every=0.5)
        assert env.ends(topic) == (stable, high), "offsets stay"
        # What was aborted is gone for raw readers too, but for the segment that is being written.
        raw = keyed(env, topic, "read_uncommitted")
        assert len(raw) < len(committed) / 2
        if shutil.which("kcat"):
            options = ["-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%o %k %s\n"]
            lines = env.kcat(*options, "-X", "isolation.level=read_committed").splitlines()
            assert lines == [" ".join(map(str, record)) for record in keyed(env, topic)]

        # A producer that was there all the time goes on, and a kill changes nothing.
        broker.restart_after_kill()
        assert last_values(keyed(env, topic)) == last_values(found)
        more = write_transactions(env, topic, 2)
        assert last_values(keyed(env, topic)) == dict(last_values(found), **last_values(more))


def test_kafkas_tool_finds_nothing_wrong_with_compacted_segments(env):
    """kafka-dump-log over every file of a compacted partition, of the stopped broker. (That offsets are not
    consecutive it says of every compacted log.)"""
    env.only_tidemark("it looks at our files")
    needs_confluent()
    if shutil.which("java") is None:
        raise Skip("java is missing")
    fetched = subprocess.run([ROOT / "scripts/peers/kafka", "fetch"], capture_output=True, text=True, timeout=700)
    if fetched.returncode != 0:
        raise Skip(f"no jars of Apache Kafka: {fetched.stderr.strip()[-200:]}")
    jars = Path(fetched.stdout.strip().splitlines()[-1])
    jars = jars if (jars / "libs").is_dir() else jars.parent
    with env.private(settings(env)) as broker:
        topic = env.topic(config=COMPACTED)
        write_transactions(env, topic, 30)

        def compacted():
            found = sorted(broker.data.glob("partitions/*/compacted-*/*.log"))
            # Of the topic: internal ones are compacted too, and may have nothing left the next moment.
            internal = "00000000-0000-0000-0000-0000000000"
            found = [file for file in found if not file.parent.parent.name.startswith(internal)]
            assert found and sum(file.stat().st_size for file in found) < 2_000_000, found
            return found

        looks = []

        def settled():
            # Files of a run that is going on do not count: a stop gives it up.
            looks.append(compacted())
            assert len(looks) > 2 and looks[-1] == looks[-2] == looks[-3], "a run is going on"

        eventually(settled, seconds=60, every=0.5)
        broker.stop()
        folders = {file.parent for file in compacted()}
        files = sorted(file for folder in folders for file in folder.iterdir())
        files = [file for file in files if file.suffix in (".log", ".index", ".timeindex", ".txnindex")]
        assert {file.suffix for file in files} >= {".log", ".index", ".timeindex"}
        command = ["java", "-cp", f"{jars}/libs/*", "kafka.tools.DumpLogSegments", "--deep-iteration", "--files"]
        result = subprocess.run(
            command + [",".join(map(str, files))], capture_output=True, text=True, timeout=120
        )
        assert result.returncode == 0, result.stderr[-2000:]
        text = result.stdout
        assert "isTransactional: true" in text and "Starting offset" in text or "Log starting offset" in text
        for wrong in ["isvalid: false", "Mismatches", "not found", "Found timestamp mismatch",
                      "Found out of order timestamp", "Exception"]:
            assert wrong not in text, f"{wrong}: {text[-3000:]}"
