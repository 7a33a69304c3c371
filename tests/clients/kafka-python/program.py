"""The scenario's verbs (tests/clients/lib/scenario.py) in Python, on kafka-python."""

import logging
import os
import sys
import threading
import time

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, __version__
from kafka import errors
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.structs import OffsetAndMetadata
from verbs import serve

logging.basicConfig(level=os.environ.get("TIDEMARK_TEST_CLIENT_LOG", "warning").upper())
BROKER = sys.argv[1]
BASE = {"bootstrap_servers": BROKER, "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 200}


class Token(AbstractTokenProvider):
    def token(self):
        with open(os.environ["TIDEMARK_TEST_TOKEN_FILE"]) as file:
            return file.read().strip()


if os.environ.get("TIDEMARK_TEST_CA"):
    BASE.update(security_protocol="SSL", ssl_cafile=os.environ["TIDEMARK_TEST_CA"])
if os.environ.get("TIDEMARK_TEST_CERTIFICATE"):
    BASE.update(ssl_certfile=os.environ["TIDEMARK_TEST_CERTIFICATE"], ssl_keyfile=os.environ["TIDEMARK_TEST_KEY"])
if os.environ.get("TIDEMARK_TEST_MECHANISM"):
    BASE.update(security_protocol="SASL_SSL", sasl_mechanism=os.environ["TIDEMARK_TEST_MECHANISM"])
    if os.environ["TIDEMARK_TEST_MECHANISM"] == "OAUTHBEARER":
        BASE["sasl_oauth_token_provider"] = Token()
    else:
        BASE["sasl_plain_username"] = os.environ["TIDEMARK_TEST_USER"]
        BASE["sasl_plain_password"] = os.environ["TIDEMARK_TEST_PASSWORD"]
producers, received, assigned = {}, [], set()


def kind(error):
    if isinstance(error, (errors.ProducerFencedError, errors.InvalidProducerEpochError)):
        return "fenced"
    fatal = any(p._transaction_manager and p._transaction_manager.has_fatal_error() for p in producers.values())
    return "fatal" if fatal else "other"


def producer(name, how, transactional_id=None):
    options = {"plain": {"enable_idempotence": False}, "idempotent": {"enable_idempotence": True}}.get(how)
    if how == "transactional":
        options = {"transactional_id": transactional_id}
    elif options is None:
        options = {"compression_type": None if how == "none" else how}
    producers[name] = KafkaProducer(**BASE, **options)
    if transactional_id:
        producers[name].init_transactions()


def send(name, topic, partition, value):
    producers[name].send(topic, value.encode(), partition=int(partition)).get(60)


def many(name, topic, partition, prefix, count):
    sent = [producers[name].send(topic, f"{prefix}{i}".encode(), partition=int(partition)) for i in range(int(count))]
    for one in sent:
        one.get(60)


def consumer(group, level="read_committed", **more):
    return KafkaConsumer(
        **BASE, group_id=group, isolation_level=level, enable_auto_commit=False, auto_offset_reset="earliest",
        session_timeout_ms=6000, heartbeat_interval_ms=500, **more,
    )  # fmt: skip


def process(name, group, source, sink, count, end):
    count, reader, records = int(count), consumer(group), []
    # Without it the assignor may find no partitions, and the client does not look again.
    reader.partitions_for_topic(source)
    reader.subscribe([source])
    deadline = time.monotonic() + 30
    while len(records) < count:
        assert time.monotonic() < deadline, f"only {len(records)} records within 30 s"
        for some in reader.poll(200, max_records=count - len(records)).values():
            records += some
    producers[name].begin_transaction()
    for record in records:
        producers[name].send(sink, record.value + b"*", partition=0)
    offsets = {TopicPartition(source, 0): OffsetAndMetadata(records[-1].offset + 1, "", -1)}
    producers[name].send_offsets_to_transaction(offsets, reader.group_metadata())
    producers[name].commit_transaction() if end == "commit" else producers[name].abort_transaction()
    reader.close(autocommit=False)


def committed(group, topic, partition):
    reader = consumer(group)
    offset = reader.committed(TopicPartition(topic, int(partition)))
    reader.close(autocommit=False)
    return -1 if offset is None else offset


def read(topic, partition, level, last, ms):
    reader, values = consumer(None, level), []
    where = TopicPartition(topic, int(partition))
    reader.assign([where])
    reader.seek_to_beginning(where)
    deadline = time.monotonic() + int(ms) / 1000
    while time.monotonic() < deadline and last not in values:
        for some in reader.poll(100).values():
            values += [record.value.decode() for record in some]
    reader.close(autocommit=False)
    return values


class Listener(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        assigned.difference_update(p.partition for p in revoked)

    def on_partitions_assigned(self, more):
        assigned.update(p.partition for p in more)


def join(group, topic):
    def work():
        reader = consumer(group)
        reader.subscribe([topic], listener=Listener())
        while True:
            for some in reader.poll(100).values():
                received.extend(record.value.decode() for record in some)
                reader.commit()

    threading.Thread(target=work, daemon=True).start()


class Log(logging.Handler):
    """What the client writes when it is not let in: its error says that time ran out."""

    last = ""

    def emit(self, record):
        said = record.getMessage()
        if "SaslAuthenticationFailed" in said or "[SSL" in said or not self.last:
            self.last = said


def connect():
    log = Log(logging.WARNING)
    logging.getLogger("kafka").addHandler(log)
    try:
        admin = KafkaAdminClient(**BASE, bootstrap_timeout_ms=5000, request_timeout_ms=5000)
        admin.list_topics()
        admin.close()
    except errors.KafkaTimeoutError as error:
        raise errors.KafkaTimeoutError(f"{error}; in its log: {log.last}") from None


def create_topic(topic, partitions):
    admin = KafkaAdminClient(**BASE)
    admin.create_topics([NewTopic(topic, int(partitions), 1)])
    admin.close()


def describe_config(topic, key):
    admin = KafkaAdminClient(**BASE)
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    admin.close()
    return found["topic"][topic][key]["value"]


serve(
    {
        "hello": lambda: ["kafka-python", __version__],
        "connect": connect,
        "reconnects": lambda: None,
        "codecs": lambda: ["none", "gzip", "snappy", "lz4", "zstd"],
        "producer": producer,
        "send": send,
        "many": many,
        "begin": lambda name: producers[name].begin_transaction(),
        "commit": lambda name: producers[name].commit_transaction(),
        "abort": lambda name: producers[name].abort_transaction(),
        "close": lambda name: producers[name].close(),
        "process": process,
        "committed": committed,
        "read": read,
        "join": join,
        "assignment": lambda: sorted(assigned),
        "received": lambda: list(received),
        "create-topic": create_topic,
        "describe-config": describe_config,
    },
    kind,
)
