"""The scenario's verbs (tests/clients/lib/scenario.py) in Python, on confluent-kafka (librdkafka)."""

import base64
import json
import logging
import os
import sys
import threading
import time

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from verbs import serve

BASE = {
    "bootstrap.servers": sys.argv[1],
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "error_cb": lambda error: print(error, file=sys.stderr),
}
failures = []  # what the client shows when it cannot connect
logged = []  # what it writes then


class Log(logging.Handler):
    def emit(self, record):
        print(record.getMessage(), file=sys.stderr)
        logged.append(record.getMessage())


def on_error(error):
    print(error, file=sys.stderr)
    if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
        failures.append(error)


def token(_):
    with open(os.environ["TIDEMARK_TEST_TOKEN_FILE"]) as file:
        text = file.read().strip()
    claims = text.split(".")[1]
    end = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
    # The client does not send what is over. Here it shall, and hear what the broker says.
    return text, end if end > time.time() else time.time() + 60


if os.environ.get("TIDEMARK_TEST_CA"):
    BASE.update({"security.protocol": "ssl", "ssl.ca.location": os.environ["TIDEMARK_TEST_CA"], "error_cb": on_error})
if os.environ.get("TIDEMARK_TEST_CERTIFICATE"):
    BASE["ssl.certificate.location"] = os.environ["TIDEMARK_TEST_CERTIFICATE"]
    BASE["ssl.key.location"] = os.environ["TIDEMARK_TEST_KEY"]
if os.environ.get("TIDEMARK_TEST_MECHANISM"):
    BASE.update({"security.protocol": "sasl_ssl", "sasl.mechanisms": os.environ["TIDEMARK_TEST_MECHANISM"]})
    if os.environ["TIDEMARK_TEST_MECHANISM"] == "OAUTHBEARER":
        BASE["oauth_cb"] = token
    else:
        BASE["sasl.username"] = os.environ["TIDEMARK_TEST_USER"]
        BASE["sasl.password"] = os.environ["TIDEMARK_TEST_PASSWORD"]
if os.environ.get("TIDEMARK_TEST_CLIENT_LOG"):
    BASE["debug"] = os.environ["TIDEMARK_TEST_CLIENT_LOG"]
producers, received, assigned = {}, [], set()


def kind(error):
    if not isinstance(error, KafkaException):
        return "other"
    cause = error.args[0]
    fenced = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    return "fenced" if cause.code() in fenced else "fatal" if cause.fatal() else "other"


def producer(name, how, transactional_id=None):
    options = {"plain": {}, "idempotent": {"enable.idempotence": True}}.get(how)
    if how == "transactional":
        options = {"transactional.id": transactional_id}
    elif options is None:
        options = {"compression.type": how}
    producers[name] = Producer({**BASE, "linger.ms": 0, **options})
    if transactional_id:
        producers[name].init_transactions(60)


def deliver(name, topic, partition, values):
    """Produces all and waits for their acknowledgements."""
    errors, left, before = [], [len(values)], len(failures)

    def on_delivery(error, _):
        left[0] -= 1
        if error:
            errors.append(error)

    for value in values:
        producers[name].produce(topic, value, partition=int(partition), on_delivery=on_delivery)
    deadline = time.monotonic() + 60
    while left[0]:
        producers[name].poll(0.05)
        if len(failures) > before:  # it would go on asking to be let in for as long as records may take
            raise KafkaException(failures[-1])
        if time.monotonic() > deadline:
            raise TimeoutError(f"{left[0]} records were not answered within 60 s")
    if errors:
        raise KafkaException(errors[0])


def consumer(group, level="read_committed", **more):
    return Consumer(
        {**BASE, "group.id": group, "isolation.level": level, "enable.auto.commit": False,
         "auto.offset.reset": "earliest", "session.timeout.ms": 6000, "heartbeat.interval.ms": 500, **more}
    )  # fmt: skip


def values_of(message):
    if message is None:
        return []
    if message.error():
        raise KafkaException(message.error())
    return [message]


def process(name, group, source, sink, count, end):
    reader, records = consumer(group), []
    reader.subscribe([source])
    deadline = time.monotonic() + 30
    while len(records) < int(count):
        assert time.monotonic() < deadline, f"only {len(records)} records within 30 s"
        records += values_of(reader.poll(0.2))
    writer = producers[name]
    writer.begin_transaction()
    for record in records:
        writer.produce(sink, record.value() + b"*", partition=0)
    offsets = [TopicPartition(source, 0, records[-1].offset() + 1)]
    writer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 30)
    writer.commit_transaction(30) if end == "commit" else writer.abort_transaction(30)
    reader.close()


def committed(group, topic, partition):
    reader = consumer(group)
    (found,) = reader.committed([TopicPartition(topic, int(partition))], 30)
    reader.close()
    if found.error:
        raise KafkaException(found.error)
    return max(found.offset, -1)


def read(topic, partition, level, last, ms):
    reader, values = consumer("reader", level), []
    reader.assign([TopicPartition(topic, int(partition), 0)])
    deadline = time.monotonic() + int(ms) / 1000
    while time.monotonic() < deadline and last not in values:
        values += [message.value().decode() for message in values_of(reader.poll(0.1))]
    reader.close()
    return values


def join(group, topic):
    reader = consumer(group)
    reader.subscribe(
        [topic],
        on_assign=lambda _, more: assigned.update(p.partition for p in more),
        on_revoke=lambda _, less: assigned.difference_update(p.partition for p in less),
        on_lost=lambda _, less: assigned.difference_update(p.partition for p in less),
    )

    def work():
        while True:
            message = reader.poll(0.1)
            if message is not None and not message.error():
                received.append(message.value().decode())
                reader.commit(message=message, asynchronous=False)

    threading.Thread(target=work, daemon=True).start()


def connect():
    """Until the broker's metadata is there or the client says why not: by an error, or if it has none, in its log."""
    log = logging.getLogger("librdkafka")
    log.addHandler(Log())
    log.propagate = False
    client, started = Producer({**BASE, "logger": log}), time.monotonic()
    while True:
        try:
            client.list_topics(timeout=1)
            return
        except KafkaException:
            client.poll(0)
            if failures:
                raise KafkaException(failures[0]) from None
            # A client that is slow says nothing.
            if time.monotonic() > started + (6 if logged else 30):
                raise RuntimeError(f"{logged[-1]} (in its log)" if logged else "neither error nor log") from None


def create_topic(topic, partitions):
    admin = AdminClient(BASE)  # must live until the answer is there
    admin.create_topics([NewTopic(topic, int(partitions), 1)])[topic].result(30)


def describe_config(topic, key):
    wanted = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient(BASE)
    return admin.describe_configs([wanted])[wanted].result(30)[key].value


serve(
    {
        "hello": lambda: ["confluent-kafka", confluent_kafka.__version__, "librdkafka", confluent_kafka.libversion()[0]],
        "connect": connect,
        "reconnects": lambda: None,
        "codecs": lambda: ["none", "gzip", "snappy", "lz4", "zstd"],
        "producer": producer,
        "send": lambda name, topic, partition, value: deliver(name, topic, partition, [value]),
        "many": lambda name, topic, partition, prefix, count: deliver(
            name, topic, partition, [f"{prefix}{i}" for i in range(int(count))]
        ),
        "begin": lambda name: producers[name].begin_transaction(),
        "commit": lambda name: producers[name].commit_transaction(60),
        "abort": lambda name: producers[name].abort_transaction(60),
        "close": lambda name: producers.pop(name) and None,
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
