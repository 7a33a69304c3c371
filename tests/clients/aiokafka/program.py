"""The scenario's verbs (tests/clients/lib/scenario.py) in Python, on aiokafka."""

import asyncio
import logging
import os
import sys
import threading

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition, __version__, errors
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from verbs import serve

logging.basicConfig(level=os.environ.get("TIDEMARK_TEST_CLIENT_LOG", "error").upper())
BASE = {"bootstrap_servers": sys.argv[1], "retry_backoff_ms": 50}
producers, received, assigned, tasks = {}, [], set(), []
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()


def kind(error):
    fenced = (errors.ProducerFenced, errors.InvalidProducerEpoch)
    return "fenced" if isinstance(error, fenced) or isinstance(error.__cause__, fenced) else "other"


async def producer(name, how, transactional_id=None):
    options = {"plain": {}, "idempotent": {"enable_idempotence": True}}.get(how)
    if how == "transactional":
        options = {"transactional_id": transactional_id}
    elif options is None:
        options = {"compression_type": None if how == "none" else how}
    producers[name] = AIOKafkaProducer(**BASE, **options)
    await producers[name].start()


async def send(name, topic, partition, value):
    await producers[name].send_and_wait(topic, value.encode(), partition=int(partition))


async def many(name, topic, partition, prefix, count):
    sent = [
        await producers[name].send(topic, f"{prefix}{i}".encode(), partition=int(partition)) for i in range(int(count))
    ]
    await asyncio.gather(*sent)


def consumer(group, level="read_committed"):
    return AIOKafkaConsumer(
        **BASE, group_id=group, isolation_level=level, enable_auto_commit=False, auto_offset_reset="earliest",
        session_timeout_ms=6000, heartbeat_interval_ms=500,
    )  # fmt: skip


async def process(name, group, source, sink, count, end):
    count, reader, records = int(count), consumer(group), []
    reader.subscribe([source])
    await reader.start()
    try:
        while len(records) < count:
            records.append(await asyncio.wait_for(reader.getone(), 30))
        await producers[name].begin_transaction()
        for record in records:
            await producers[name].send(sink, record.value + b"*", partition=0)
        offsets = {TopicPartition(source, 0): records[-1].offset + 1}
        await producers[name].send_offsets_to_transaction(offsets, group)
        await (producers[name].commit_transaction() if end == "commit" else producers[name].abort_transaction())
    finally:
        await reader.stop()


async def committed(group, topic, partition):
    reader = consumer(group)
    await reader.start()
    try:
        offset = await reader.committed(TopicPartition(topic, int(partition)))
    finally:
        await reader.stop()
    return -1 if offset is None else offset


async def read(topic, partition, level, last, ms):
    reader, values = consumer(None, level), []
    where = TopicPartition(topic, int(partition))
    await reader.start()
    try:
        reader.assign([where])
        await reader.seek_to_beginning(where)
        async with asyncio.timeout(int(ms) / 1000):
            while last not in values:
                values.append((await reader.getone()).value.decode())
    except TimeoutError:
        pass
    finally:
        await reader.stop()
    return values


class Listener(ConsumerRebalanceListener):
    async def on_partitions_revoked(self, revoked):
        assigned.difference_update(p.partition for p in revoked)

    async def on_partitions_assigned(self, more):
        assigned.update(p.partition for p in more)


async def join(group, topic):
    reader = consumer(group)
    await reader.start()
    reader.subscribe([topic], listener=Listener())

    async def work():
        while True:
            received.append((await reader.getone()).value.decode())
            await reader.commit()

    tasks.append(asyncio.create_task(work()))


async def with_admin(use):
    admin = AIOKafkaAdminClient(**BASE)
    await admin.start()
    try:
        return await use(admin)
    finally:
        await admin.close()


async def create_topic(topic, partitions):
    answer = await with_admin(lambda admin: admin.create_topics([NewTopic(topic, int(partitions), 1)]))
    for _, code, *_ in answer.topic_errors:
        if code:
            raise errors.for_code(code)()


async def describe_config(topic, key):
    wanted = ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: ""})
    (answer,) = await with_admin(lambda admin: admin.describe_configs([wanted]))
    code, message, _, _, entries = answer.resources[0]
    if code:
        raise errors.for_code(code)(message)
    return [entry[1] for entry in entries if entry[0] == key]


async def end(verb, name):
    await getattr(producers[name], verb)()


def on_loop(function):
    return lambda *words: asyncio.run_coroutine_threadsafe(function(*words), loop).result(70)


serve(
    {
        "hello": lambda: ["aiokafka", __version__],
        "reconnects": lambda: None,
        "codecs": lambda: ["none", "gzip", "snappy", "lz4", "zstd"],
        "producer": on_loop(producer),
        "send": on_loop(send),
        "many": on_loop(many),
        "begin": on_loop(lambda name: end("begin_transaction", name)),
        "commit": on_loop(lambda name: end("commit_transaction", name)),
        "abort": on_loop(lambda name: end("abort_transaction", name)),
        "close": on_loop(lambda name: end("stop", name)),
        "process": on_loop(process),
        "committed": on_loop(committed),
        "read": on_loop(read),
        "join": on_loop(join),
        "assignment": lambda: sorted(assigned),
        "received": lambda: list(received),
        "create-topic": on_loop(create_topic),
        "describe-config": on_loop(describe_config),
    },
    kind,
)
