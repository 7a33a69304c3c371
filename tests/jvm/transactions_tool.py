#!/usr/bin/env python3
"""Apache Kafka's own kafka-transactions.sh against a running broker: every command, what it prints and what it does.

    tests/jvm/transactions_tool.py --broker COMMAND --jars FOLDER [--kafka COMMAND]

One story: transactions in three states, one of them open in three partitions; list, describe, describe-producers and
find-hanging tell of it, abort and forceTerminateTransaction end it and the last stable offsets move. With --kafka the same
story is played on an Apache Kafka too, and what the tool prints is compared, with ids and times taken out. The last line:

    transactions-tool: commands=N checks=N failed=0 | kafka: commands=N compared=N different=0
"""

import argparse
import logging
import subprocess
import sys
import time

from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from lib import Broker, all_ended, ck, eventually

SECONDS_PER_COMMAND = 60
# More than nothing: the tool looks for transactions that are older than the longest timeout, in minutes.
ANY_AGE = ["--max-transaction-timeout", "0"]
# librdkafka tells of every connection that ends; what counts is checked.
SILENT = logging.getLogger("librdkafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


class Story:
    """The story on one broker: what was checked, and what the tool printed, for the comparison."""

    def __init__(self, kind, command, jars):
        self.kind, self.jars = kind, jars
        self.broker = Broker(kind, command, {"group.initial.rebalance.delay.ms": 0})
        self.commands, self.checks, self.failed = 0, 0, []
        self.printed = {}

    # ------------------------------------------------------------------------------------ the tool

    def tool(self, *words, fails=False):
        """Runs the tool; returns its table without the head, a list of rows, or what it says when it is to fail."""
        self.commands += 1
        done = subprocess.run(
            ["java", "-Xmx128M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
             "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{self.jars}/*",
             "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", self.broker.address, *map(str, words)],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=SECONDS_PER_COMMAND,
        )  # fmt: skip
        said = done.stdout + done.stderr
        self.check(f"{words[0]} ends with {1 if fails else 0}", done.returncode == (1 if fails else 0), said)
        if fails:
            return said
        lines = [[cell.strip() for cell in line.split("\t") if cell.strip()] for line in done.stdout.splitlines()]
        return [dict(zip(lines[0], line)) for line in lines[1:]] if lines else []

    def check(self, what, held, found=""):
        self.checks += 1
        if not held:
            found = " ".join(str(found).split())[:400]
            self.failed.append(what)
            print(f"FAIL {self.kind}: {what}; found: {found}", flush=True)

    def compare(self, label, rows, *columns):
        """Keeps some columns of what was printed: the other broker's must be equal."""
        self.printed[label] = sorted([row.get(column, "") for column in columns] for row in rows)

    # ---------------------------------------------------------------------------------- the clients

    def producer(self, transactional_id=None, **more):
        settings = {"bootstrap.servers": self.broker.address, "linger.ms": 0, **more}
        if transactional_id:
            settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": 600_000}
        else:
            settings["enable.idempotence"] = True
        producer = ck.Producer(settings, logger=SILENT)
        if transactional_id:
            eventually(lambda: producer.init_transactions(30), 60)
        return producer

    def write(self, producer, topic, partition, *values):
        failed = []
        for value in values:
            producer.produce(topic, value, partition=partition,
                             on_delivery=lambda error, _: failed.append(error) if error else None)  # fmt: skip
        producer.flush(30)
        if failed:
            raise RuntimeError(f"{topic}-{partition}: {failed[0]}")

    def ends(self, topic, partition):
        """The last stable offset and the high watermark."""
        found = []
        for isolation in (ck.IsolationLevel.READ_COMMITTED, ck.IsolationLevel.READ_UNCOMMITTED):
            at = ck.TopicPartition(topic, partition)
            future = self.admin.list_offsets({at: OffsetSpec.latest()}, isolation_level=isolation, request_timeout=30)
            found.append(future[at].result(30).offset)
        return tuple(found)

    def committed(self, topic, partition):
        """The values that a read_committed reader sees."""
        consumer = ck.Consumer({"bootstrap.servers": self.broker.address, "group.id": "reader",
                                "enable.auto.commit": False, "isolation.level": "read_committed",
                                "enable.partition.eof": True, "auto.offset.reset": "earliest"},
                               logger=SILENT)  # fmt: skip
        consumer.assign([ck.TopicPartition(topic, partition, 0)])
        values, deadline = [], time.monotonic() + 30
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error():
                break
            values.append(message.value().decode())
        consumer.close()
        if message is None or not message.error() or message.error().code() != ck.KafkaError._PARTITION_EOF:
            raise RuntimeError(f"{topic}-{partition} was not read to its end: {values}, {message and message.error()}")
        return values

    # ------------------------------------------------------------------------------------ the story

    def play(self):
        self.broker.start()
        try:
            self.admin = AdminClient({"bootstrap.servers": self.broker.address}, logger=SILENT)
            futures = self.admin.create_topics([NewTopic("held", 2, 1), NewTopic("other", 1, 1)], operation_timeout=30)
            for future in futures.values():
                future.result(30)
            self.told()
            self.aborted()
            self.aborted_by_producer_id()
            self.terminated()
        finally:
            self.broker.stop()
            panics = self.broker.panics()
            self.check("the broker's log has no panic", not panics, panics)
            self.broker.remove()

    def told(self):
        """What the tool tells of one transaction that is open, one that is done and one that never began."""
        self.write(self.producer(), "held", 0, "plain")
        done = self.producer("tx-done")
        done.begin_transaction()
        self.write(done, "held", 0, "done")
        done.commit_transaction(30)
        self.producer("tx-idle")
        self.open = self.producer("tx-open")
        self.open.begin_transaction()
        for topic, partition in (("held", 0), ("held", 1), ("other", 0)):
            self.write(self.open, topic, partition, "open 1", "open 2")
        self.start, end = self.ends("held", 0)
        self.check("the open transaction holds the last stable offset back", (self.start, end) == (3, 5), (self.start, end))

        rows = self.tool("list")
        self.compare("list", rows, "TransactionalId", "TransactionState")
        states = {row["TransactionalId"]: row["TransactionState"] for row in rows}
        wanted = {"tx-open": "Ongoing", "tx-done": "CompleteCommit", "tx-idle": "Empty"}
        self.check("list: three ids and their states", states == wanted, rows)
        ids = {row["TransactionalId"]: row["ProducerId"] for row in rows}
        node = {row["Coordinator"] for row in rows}
        self.check("list: one coordinator", len(node) == 1, rows)
        (node,) = node

        # In Kafka too the filter lets pass whose transaction is not open.
        for longer_than_ms, listed in ((1, True), (600_000, False)):
            rows = self.tool("list", "--duration-filter", longer_than_ms)
            self.compare(f"list --duration-filter {longer_than_ms}", rows, "TransactionalId", "TransactionState")
            self.check(f"list --duration-filter {longer_than_ms}: the open one is {'' if listed else 'not '}there",
                       ("tx-open" in {row["TransactionalId"] for row in rows}) == listed, rows)  # fmt: skip
        rows = self.tool("list", "--transactional-id-pattern", "tx-(done|i.*)")
        self.compare("list --transactional-id-pattern", rows, "TransactionalId", "TransactionState")
        found = sorted(row["TransactionalId"] for row in rows)
        self.check("list --transactional-id-pattern: those that match", found == ["tx-done", "tx-idle"], rows)

        rows = self.tool("describe", "--transactional-id", "tx-open")
        self.compare("describe", [{**row, "TopicPartitions": ",".join(sorted(row["TopicPartitions"].split(",")))}
                                  for row in rows], "TransactionalId", "ProducerEpoch", "TransactionState",
                     "TransactionTimeoutMs", "TopicPartitions")  # fmt: skip
        row = rows[0] if len(rows) == 1 else {}
        self.check("describe: ongoing, with its timeout and producer id",
                   (row.get("TransactionState"), row.get("TransactionTimeoutMs"), row.get("ProducerId"))
                   == ("Ongoing", "600000", ids.get("tx-open")), rows)  # fmt: skip
        self.check("describe: its partitions", sorted(row.get("TopicPartitions", "").split(","))
                   == ["held-0", "held-1", "other-0"], rows)  # fmt: skip
        self.check("describe: how long it has run",
                   row.get("CurrentTransactionStartTimeMs", "").isdigit()
                   and 0 <= int(row.get("TransactionDurationMs", -1)) < 600_000, rows)  # fmt: skip
        said = self.tool("describe", "--transactional-id", "nobody", fails=True)
        self.check("describe of an unknown id says so", "nobody" in said and "not found" in said.lower()
                   or "could not be found" in said, said)  # fmt: skip

        rows = self.tool("describe-producers", "--topic", "held", "--partition", 0)
        self.compare("describe-producers", rows, "LastSequence", "CurrentTransactionStartOffset")
        found = {row["ProducerId"]: row["CurrentTransactionStartOffset"] for row in rows}
        self.check("describe-producers: three, of which one has a transaction open",
                   len(found) == 3 and found.get(ids.get("tx-open")) == str(self.start)
                   and sorted(found.values()) == sorted([str(self.start), "None", "None"]), rows)  # fmt: skip
        on_node = self.tool("describe-producers", "--topic", "held", "--partition", 0, "--broker-id", node)
        self.check("describe-producers --broker-id: the same", on_node == rows, on_node)

        for where in (["--topic", "held"], ["--broker-id", node]):
            rows = self.tool("find-hanging", *where, *ANY_AGE)
            self.compare(f"find-hanging {where[0]}", rows, "Topic", "Partition", "StartOffset")
            self.check(f"find-hanging {where[0]}: none, its coordinator knows the open one", rows == [], rows)

    def aborted(self):
        """abort by start offset ends what is open."""
        said = self.tool("abort", "--topic", "held", "--partition", 0, "--start-offset", self.start - 1, fails=True)
        self.check("abort where nothing is open says so", "Could not find any open transactions" in said, said)
        self.tool("abort", "--topic", "held", "--partition", 0, "--start-offset", self.start)
        stable, end = self.ends("held", 0)
        self.check("abort frees the last stable offset", stable == end == 6, (stable, end))
        rows = self.tool("describe-producers", "--topic", "held", "--partition", 0)
        self.check("describe-producers: nothing is open any more",
                   rows and all(row["CurrentTransactionStartOffset"] == "None" for row in rows), rows)  # fmt: skip
        if self.kind == "kafka":  # there the coordinator does not hear of it, and its id is in use for ever
            self.open.abort_transaction(30)
            return
        others = [self.ends("held", 1), self.ends("other", 0)]
        self.check("abort ends the whole transaction", others == [(3, 3), (3, 3)], others)
        rows = self.tool("describe", "--transactional-id", "tx-open")
        self.check("describe: aborted", len(rows) == 1 and rows[0]["TransactionState"] == "CompleteAbort"
                   and rows[0].get("TopicPartitions", "") == "", rows)  # fmt: skip
        try:
            self.open.commit_transaction(30)
            self.check("what was aborted cannot commit", False, "it committed")
        except ck.KafkaException as error:
            self.check("what was aborted cannot commit", not error.args[0].retriable(), error)
        again = self.producer("tx-open")
        again.begin_transaction()
        self.write(again, "held", 0, "again")
        again.commit_transaction(30)
        found = self.committed("held", 0)
        self.check("readers see what was committed", found == ["plain", "done", "again"], found)

    def terminated(self):
        """forceTerminateTransaction ends whatever a transactional id has open, and fences its producer."""
        held = self.producer("tx-held")
        held.begin_transaction()
        self.write(held, "held", 1, "held")
        before = self.ends("held", 1)
        self.check("another transaction holds the last stable offset back", before[0] < before[1], before)
        self.tool("forceTerminateTransaction", "--transactionalId", "tx-held")
        eventually(lambda: self.is_free("held", 1), 30)
        stable, end = self.ends("held", 1)
        self.check("forceTerminateTransaction frees the last stable offset", stable == end == before[1] + 1, (stable, end))
        try:
            held.commit_transaction(30)
            self.check("what was terminated cannot commit", False, "it committed")
        except ck.KafkaException as error:
            self.check("what was terminated is fenced", error.args[0].code() == ck.KafkaError._FENCED, error)

    def is_free(self, topic, partition):
        stable, end = self.ends(topic, partition)
        assert stable == end, (stable, end)

    def aborted_by_producer_id(self):
        """abort by producer id and epoch, as for brokers before 3.0."""
        old = self.producer("tx-old")
        old.begin_transaction()
        self.write(old, "other", 0, "old")
        start, _ = self.ends("other", 0)
        rows = self.tool("describe-producers", "--topic", "other", "--partition", 0)
        (row,) = [row for row in rows if row["CurrentTransactionStartOffset"] == str(start)] or [{}]
        where = ["--topic", "other", "--partition", 0, "--producer-id", row.get("ProducerId", -1)]
        rest = ["--coordinator-epoch", row.get("LatestCoordinatorEpoch", -1)]
        epoch = int(row.get("ProducerEpoch", -1))
        if self.kind != "kafka":  # Kafka takes any epoch that is not older
            said = self.tool("abort", *where, "--producer-epoch", epoch + 1, *rest, fails=True)
            self.check("abort of another epoch is refused", "epoch" in said.lower(), said)
        self.tool("abort", *where, "--producer-epoch", epoch, *rest)
        stable, end = self.ends("other", 0)
        self.check("abort by producer id frees the last stable offset", stable == end == start + 2, (stable, end))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", required=True, help="command that starts Tidemark; {port} and {data} are filled in")
    parser.add_argument("--kafka", help="command that starts Apache Kafka, to compare with")
    parser.add_argument("--jars", required=True, help="folder with the jars of Kafka's tools")
    options = parser.parse_args()
    stories = [Story("tidemark", options.broker, options.jars)]
    if options.kafka:
        stories.append(Story("kafka", options.kafka, options.jars))
    with all_ended():
        for story in stories:
            story.play()
    ours, *theirs = stories
    line = f"transactions-tool: commands={ours.commands} checks={ours.checks} failed={len(ours.failed)}"
    failed = bool(ours.failed)
    for kafka in theirs:
        different = [label for label in kafka.printed if kafka.printed[label] != ours.printed.get(label)]
        for label in different:
            print(f"DIFFERENT {label}: tidemark {ours.printed.get(label)}, kafka {kafka.printed[label]}")
        line += f" | kafka: commands={kafka.commands} compared={len(kafka.printed)} different={len(different)}"
        failed = failed or bool(kafka.failed) or bool(different)
    print(line)
    return 1 if failed or ours.commands < 15 else 0


if __name__ == "__main__":
    sys.exit(main())
