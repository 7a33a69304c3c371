"""What the end-to-end tests share: a broker process, clients, a proxy that breaks connections.

Every test is a function `test_...(env)` in a module `test_*.py`. It passes when it returns, fails when it raises
and is skipped, by name, when it raises Skip. Topics, groups and transactional ids get a fresh name each, so the
tests can share a broker; a test that kills or configures one takes its own (`env.private`).
"""

import collections
import itertools
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

try:
    import confluent_kafka as ck
    from confluent_kafka.admin import AdminClient
except ImportError:  # then the tests that need it are skipped by name
    ck = None

ROOT = Path(__file__).resolve().parents[2]
SECONDS_PER_COMMAND = 30


class Skip(Exception):
    """Raised by a test that cannot run here; the text says what is missing."""


def needs_confluent():
    if ck is None:
        raise Skip("confluent-kafka is not installed")


def needs_kcat():
    if shutil.which("kcat") is None:
        raise Skip("kcat is not installed")


def eventually(check, seconds=10.0, every=0.05):
    """Calls `check` until it neither raises AssertionError nor KafkaException; returns what it returned."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return check()
        except (AssertionError, ck.KafkaException if ck else AssertionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(every)


def free_port():
    """A free loopback port below the range of outgoing connections: nobody takes it while the broker is down."""
    for _ in range(200):
        port = random.randrange(15000, 30000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError("no free port between 15000 and 30000")


class Broker:
    """A broker process. `settings` are Kafka's names; each kind of broker is told in its own way."""

    running = set()  # whatever must be ended when the run is cut short

    def __init__(self, kind, command, settings=None, port=None, data=None):
        self.kind = kind
        self.port = port or free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="tidemark-e2e."))
        self.data = Path(data) if data else self.folder / "data"
        self.data.mkdir(exist_ok=True)
        self.log = self.folder / "broker.log"
        self.process = None
        self.environment = dict(os.environ)
        self.command = [
            word.replace("{port}", str(self.port)).replace("{data}", str(self.data)) for word in command.split()
        ]
        for key, value in (settings or {}).items():
            if kind == "kafka":
                self.command += ["--set", f"{key}={value}"]
            else:
                self.environment["TIDEMARK_" + key.upper().replace(".", "_")] = str(value)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def start(self, seconds=60):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        Broker.running.add(self)
        deadline = time.monotonic() + seconds
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                if self.process.poll() is not None:
                    raise RuntimeError(f"the broker ended at start: {self.tail()}")
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the broker does not serve after {seconds} s: {self.tail()}")
                time.sleep(0.01)

    def kill(self):
        """SIGKILL; the process must still have been there."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the broker had ended by itself ({self.process.returncode}): {self.tail()}")
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        Broker.running.discard(self)

    def restart_after_kill(self):
        self.kill()
        return self.start()

    def stop(self, seconds=30):
        """SIGTERM; returns the exit code."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        Broker.running.discard(self)
        return self.process.returncode

    def tail(self):
        return self.text()[-2000:]

    def text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def panics(self):
        return [line for line in self.text().splitlines() if "panicked" in line]

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def refusal(config):
    """What a client hears that is not let in; None if it is. To be slow is no refusal."""
    heard = []
    client = ck.Producer({**config, "error_cb": heard.append})
    for _ in range(10):
        try:
            client.list_topics(timeout=3)
            return None
        except ck.KafkaException:
            client.poll(0)
            if heard:
                return heard
    raise AssertionError(f"neither let in nor refused: {config}")


class OwnBroker:
    """A broker that stands in for the environment's, for the block. Whoever is one sets env and broker."""

    secrets = ()

    def __enter__(self):
        self.before = (self.env.broker, self.env.address)
        try:
            self.env.broker, self.env.address = self.broker.start(), self.broker.address
        except RuntimeError:
            self.broker.stop()
            self.broker.remove()
            raise
        return self

    def __exit__(self, *_):
        self.env.close_clients()
        self.env.broker, self.env.address = self.before
        self.broker.stop()
        panics, log = self.broker.panics(), self.broker.text()
        self.broker.remove()
        assert not panics, f"the broker panicked: {panics[0]}"
        for secret in self.secrets:
            assert secret not in log, "a secret is in the log"

    def refusal(self, options):
        """What a client with these options hears that is not let in; None if it is."""
        return refusal(self.env.config(**options))


class ProduceAnswers:
    """The error codes in the answers to Produce that come by, whether they are handed on or not."""

    PRODUCE = 0

    def __init__(self):
        self.codes = collections.Counter()
        self.answers = self.swallowed = 0

    def ears(self):
        """For one connection: what hears its requests, and what hears its answers."""
        versions, asked, answered = {}, bytearray(), bytearray()

        def hear_requests(data):
            for frame in whole_frames(asked, data):
                key, version, correlation = struct.unpack_from(">hhi", frame)
                if key == self.PRODUCE:
                    versions[correlation] = version

        def hear_answers(data, swallowed):
            for frame in whole_frames(answered, data):
                version = versions.pop(struct.unpack_from(">i", frame)[0], None)
                if version is not None:
                    self.answers += 1
                    self.swallowed += swallowed
                    self.codes.update(produce_codes(version, frame))

        return hear_requests, hear_answers


def whole_frames(buffer, data):
    """Adds bytes to a buffer and takes the frames that are whole out of it, without their size."""
    buffer += data
    while len(buffer) >= 4 and len(buffer) >= 4 + (size := struct.unpack_from(">i", buffer)[0]):
        frame = bytes(buffer[4 : 4 + size])
        del buffer[: 4 + size]
        yield frame


def produce_codes(version, frame):
    """Each partition's error code in a Produce answer of version 9 to 12."""
    assert 9 <= version <= 12, f"Produce v{version} is not read here"
    at = 5  # correlation id, and the header has no tagged fields

    def uvarint():
        nonlocal at
        value = shift = 0
        while True:
            byte = frame[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def skip_string():
        nonlocal at
        size = max(uvarint() - 1, 0)
        at += size

    def skip_tags():
        nonlocal at
        for _ in range(uvarint()):
            uvarint()
            size = uvarint()
            at += size

    for _ in range(uvarint() - 1):
        skip_string()
        for _ in range(uvarint() - 1):
            yield struct.unpack_from(">h", frame, at + 4)[0]
            at += 4 + 2 + 8 + 8 + 8
            for _ in range(max(uvarint() - 1, 0)):
                at += 4
                skip_string()
                skip_tags()
            skip_string()
            skip_tags()
        skip_tags()


class Proxy:
    """Passes bytes between clients and the broker, until told to swallow answers or to cut."""

    def __init__(self, broker_port=None, produce_answers=None):
        self.broker_port = broker_port
        self.produce_answers = produce_answers
        self.swallow_answers = False
        self.connections = []
        self.lock = threading.Lock()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", free_port()))
        self.listener.listen(64)
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.broker_port), 5)
            except OSError:
                client.close()
                continue
            for end in (client, broker):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.connections.append((client, broker))
            hear_requests, hear_answers = self.produce_answers.ears() if self.produce_answers else (None, None)
            threading.Thread(target=self._pump, args=(client, broker, False, hear_requests), daemon=True).start()
            threading.Thread(target=self._pump, args=(broker, client, True, hear_answers), daemon=True).start()

    def _pump(self, source, sink, answers, hear):
        try:
            while data := source.recv(65536):
                swallowed = answers and self.swallow_answers
                if hear:
                    hear(data, swallowed) if answers else hear(data)
                if not swallowed:
                    sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def cut(self):
        """Closes every connection that passes through; returns how many there were."""
        with self.lock:
            connections, self.connections = self.connections, []
        for pair in connections:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                end.close()
        return len(connections)

    def close(self):
        self.listener.close()
        self.cut()


class Env:
    """One test's view: a broker and clients for it. Everything that it made is closed in the end."""

    numbers = itertools.count()

    def __init__(self, name, kind, command, broker):
        self.name = name.removeprefix("test_")
        self.kind = kind
        self.command = command
        self.broker = broker
        self.address = broker.address if broker else None
        self.closing = []

    @property
    def is_tidemark(self):
        return self.kind == "tidemark"

    def only_tidemark(self, why):
        if not self.is_tidemark:
            raise Skip(f"only for Tidemark: {why}")

    def fresh(self, what="t"):
        return f"{what}-{self.name}-{next(self.numbers)}".replace("_", "-")

    # ------------------------------------------------------------------------------------- brokers

    @contextmanager
    def private(self, settings=None, proxied=False, produce_answers=None):
        """A broker of its own for the block; `env.address` leads to it. Proxied: through a Proxy, which is also
        the address that the broker tells its clients; `produce_answers` then hears what passes."""
        settings = {"group.initial.rebalance.delay.ms": 0, **(settings or {})}
        proxy = None
        if proxied:
            proxy = Proxy(produce_answers=produce_answers)
            settings["advertised.listeners"] = f"PLAINTEXT://{proxy.address}"
        broker = Broker(self.kind, self.command, settings)
        before = (self.broker, self.address)
        try:
            broker.start()
            if proxy:
                proxy.broker_port = broker.port
            self.broker, self.address = broker, (proxy or broker).address
            yield (broker, proxy) if proxied else broker
        finally:
            self.close_clients()
            self.broker, self.address = before
            if proxy:
                proxy.close()
            broker.stop()
            panics = broker.panics()
            if not os.environ.get("TIDEMARK_TEST_KEEP"):
                broker.remove()
            if panics:
                raise AssertionError(f"the broker panicked: {panics[0]}")

    # ------------------------------------------------------------------------------------- clients

    def config(self, **options):
        base = {
            "bootstrap.servers": self.address,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            # With only one broker there is nobody else to ask while it restarts; and after a re-bootstrap
            # librdkafka 2.16 can wait for ever in send_offsets_to_transaction (its issue 5511).
            "metadata.recovery.strategy": "none",
            "log_level": 2,
            "error_cb": lambda error: None,
        }
        base.update({key.replace("_", ".") if key != "error_cb" else key: value for key, value in options.items()})
        return base

    def producer(self, **options):
        needs_confluent()
        options.setdefault("linger_ms", 0)
        producer = ck.Producer(self.config(**options))
        self.closing.append(lambda: producer.purge())
        return producer

    def transactional(self, transactional_id=None, init=True, **options):
        producer = self.producer(transactional_id=transactional_id or self.fresh("tx"), **options)
        if init:
            producer.init_transactions(30)
        return producer

    def consumer(self, isolation="read_committed", **options):
        needs_confluent()
        options.setdefault("group_id", self.fresh("g"))
        options.setdefault("auto_offset_reset", "earliest")
        options.setdefault("enable_auto_commit", False)
        consumer = ck.Consumer(self.config(isolation_level=isolation, **options))
        self.closing.append(consumer.close)
        return consumer

    def admin(self):
        needs_confluent()
        return AdminClient(self.config())

    def topic(self, partitions=1, name=None, config=None):
        """Creates a topic and waits until clients can use it."""
        needs_confluent()
        name = name or self.fresh()
        admin = self.admin()  # must live until the answer is there
        future = admin.create_topics(
            [ck.admin.NewTopic(name, partitions, 1, config=config or {})], operation_timeout=20, request_timeout=30
        )
        future[name].result(30)
        return name

    def kcat(self, *arguments, stdin=None, check=True, seconds=SECONDS_PER_COMMAND):
        """Runs kcat against the broker; returns its stdout as text."""
        needs_kcat()
        result = subprocess.run(
            ["kcat", "-b", self.address, *arguments],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=seconds,
        )
        if check and result.returncode != 0:
            raise AssertionError(f"kcat {' '.join(arguments)} failed: {result.stderr.decode(errors='replace')[-800:]}")
        return result.stdout.decode(errors="replace")

    # ------------------------------------------------------------------------------------- looking

    def read(self, topic, isolation="read_committed", partitions=1, start=0, seconds=20):
        """Everything from offset `start` to the end that this isolation level sees: [(partition, offset, value)]."""
        consumer = self.consumer(isolation, enable_partition_eof=True)
        consumer.assign([ck.TopicPartition(topic, p, start) for p in range(partitions)])
        found, ended, deadline = [], set(), time.monotonic() + seconds
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"no end of {topic} within {seconds} s, after {len(found)} records"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error():
                if message.error().code() == ck.KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                continue
            found.append((message.partition(), message.offset(), (message.value() or b"").decode()))
        consumer.close()
        self.closing.remove(consumer.close) if consumer.close in self.closing else None
        return found

    def values(self, topic, isolation="read_committed", **options):
        return [value for _, _, value in self.read(topic, isolation, **options)]

    def ends(self, topic, partition=0):
        """(last stable offset, high watermark)"""
        stable = self.consumer("read_committed").get_watermark_offsets(ck.TopicPartition(topic, partition), 10)
        high = self.consumer("read_uncommitted").get_watermark_offsets(ck.TopicPartition(topic, partition), 10)
        return stable[1], high[1]

    def settled(self, check):
        """Tidemark answers EndTxn when the end is visible: `check` must hold at once. Kafka gets some time."""
        return check() if self.is_tidemark else eventually(check)

    def committed(self, group, topic, partition=0, isolation="read_committed", seconds=10):
        """The group's committed offset; -1001 when there is none."""
        consumer = self.consumer(isolation, group_id=group)
        answer = consumer.committed([ck.TopicPartition(topic, partition)], seconds)[0]
        if answer.error:
            raise ck.KafkaException(answer.error)
        return answer.offset

    def close_clients(self):
        while self.closing:
            try:
                self.closing.pop()()
            except Exception:  # a client that is closed already, or finished by a fatal error
                pass


def deliver(producer, topic, values, partition=0, key=None, seconds=30):
    """Produces and waits for all acknowledgements; returns the offsets."""
    offsets, errors = {}, []

    def report(index):
        def on_delivery(error, message):
            if error:
                errors.append(error)
            else:
                offsets[index] = message.offset()

        return on_delivery

    for index, value in enumerate(values):
        producer.produce(topic, value, key=key, partition=partition, on_delivery=report(index))
    left = producer.flush(seconds)
    assert not errors, f"not delivered: {errors[0]}"
    assert left == 0, f"{left} records were not answered within {seconds} s"
    return [offsets[index] for index in range(len(offsets))]
