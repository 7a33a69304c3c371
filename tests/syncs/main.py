"""Looks at the real broker's system calls under a real client, and at what a power cut would leave.

The broker runs under strace while librdkafka produces, alone and in transactions. Then, for each acknowledgement:
was the file that holds the record synced after it was written there, and did that sync end before the answer left?
And from the recorded calls the data directory is built as a power cut at many moments would leave it, without what
was not synced; the broker is started on each, and every record that was acknowledged by then must be there.

The last line: `syncs: acks=N states=N missing=0`. Run by `scripts/prove syncs`.
"""

import argparse
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

import disk as disks
import trace as traces

TOPIC = "syncs"
PARTITIONS = 4
TOKEN = re.compile(rb"token-\d{6}-(?:plain|txn)")
CALLS = (
    "openat,close,pwrite64,pwritev,write,writev,sendto,sendmsg,read,recvfrom,fdatasync,fsync,rename,renameat,"
    "renameat2,unlink,unlinkat,fallocate,ftruncate,mkdir,mkdirat,accept4"
)
PRODUCE, END_TXN = 0, 26


def say(text):
    print(text, flush=True)


def die(text):
    say(f"syncs: {text}")
    sys.exit(1)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, process, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return False
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.02)
    return False


class Broker:
    """A broker on a directory, perhaps under strace."""

    def __init__(self, command, data, log, trace=None):
        self.port = free_port()
        words = command.format(port=self.port, data=data).split()
        environment = dict(os.environ)
        # Small files, so that the journal goes round and checkpoints are written.
        environment.update(
            TIDEMARK_JOURNAL_SLOT_BYTES="2097152",
            TIDEMARK_JOURNAL_BUDGET_BYTES="16777216",
            TIDEMARK_TAIL_BYTES="1048576",
            TIDEMARK_CHECKPOINT_INTERVAL_MS="700",
            TIDEMARK_GROUP_INITIAL_REBALANCE_DELAY_MS="0",
        )
        if trace:
            words = ["strace", "-f", "-xx", "-s", "8388608", "-e", f"trace={CALLS}", "-o", trace] + words
        self.log = open(log, "ab")
        self.process = subprocess.Popen(words, stdout=self.log, stderr=self.log, env=environment, start_new_session=True)
        if not wait_for(self.port, self.process, 60):
            self.kill()
            raise RuntimeError(f"the broker does not start; see {log}")

    def kill(self):
        # The group of this process only: strace and the broker under it.
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


def load(port, records, transactions):
    """Produces; the tokens that were acknowledged and those that were committed."""
    address = f"127.0.0.1:{port}"
    admin = AdminClient({"bootstrap.servers": address})
    made = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
    made[TOPIC].result(30)
    acked, committed = [], []

    def delivered(error, message):
        if error is None:
            acked.append(TOKEN.search(message.value()).group())

    common = {"bootstrap.servers": address, "linger.ms": 0, "enable.idempotence": True}
    plain = ck.Producer(dict(common))
    txn = ck.Producer({**common, "transactional.id": "syncs-writer"})
    txn.init_transactions(30)
    number, pad = 0, b"." * 400
    every = max(1, records // max(1, transactions))
    for n in range(records):
        number += 1
        token = b"token-%06d-plain" % number
        plain.produce(TOPIC, token + pad * (n % 12), partition=n % PARTITIONS, on_delivery=delivered)
        plain.poll(0.001)
        if n % every == 0:
            txn.begin_transaction()
            tokens = []
            for partition in range(PARTITIONS):
                number += 1
                tokens.append(b"token-%06d-txn" % number)
                txn.produce(TOPIC, tokens[-1], partition=partition, on_delivery=delivered)
            txn.commit_transaction(30)
            committed.append(tokens)
    plain.flush(30)
    return acked, committed


class Socket:
    """The frames of one connection, in both directions."""

    def __init__(self):
        self.received, self.sent = bytearray(), bytearray()
        self.waiting = {}  # correlation id -> (api key, tokens, line at which it was read)

    def receive(self, data, line, requests):
        self.received += data
        for frame in frames(self.received):
            api, _version, correlation = struct.unpack_from(">hhi", frame)
            self.waiting[correlation] = (api, TOKEN.findall(bytes(frame)), line)
            requests[0] += 1

    def send(self, data, line):
        """(api key, tokens, line of the request, line of the answer) of each answer that begins to leave."""
        self.sent += data
        for frame in frames(self.sent):
            (correlation,) = struct.unpack_from(">i", frame)
            asked = self.waiting.pop(correlation, None)
            if asked:
                yield (*asked, line)


def frames(buffer):
    while len(buffer) >= 4:
        (size,) = struct.unpack_from(">i", buffer)
        if len(buffer) < 4 + size:
            return
        frame = buffer[4 : 4 + size]
        del buffer[: 4 + size]
        yield frame


class Recording:
    """The calls of a run, put back together: files, sockets, and the order of it all."""

    def __init__(self, calls, data):
        self.data = data
        # Writes to slots: (began, ended, file, tokens, is the end of a transaction in it); syncs: (began, ended, file).
        self.writes, self.syncs = [], []
        self.answers = []
        self.requests = [0]
        # What changes the disk, as (line, what to do to a Disk): built anew for each state.
        self.steps = []
        self.follow(sorted(calls, key=lambda call: call.ended))

    def follow(self, calls):
        descriptors = {}
        names = {}  # path -> a number that stays with the file when it is renamed
        count = 0
        for call in calls:
            name, result = call.name, call.result
            if result < 0:
                continue
            if name == "openat":
                path = self.path(call.strings()[0])
                if path is None:
                    descriptors.pop(result, None)
                    continue
                is_dir = "O_DIRECTORY" in call.args or os.path.isdir(path)
                if not is_dir and path not in names:
                    if "O_CREAT" not in call.args:
                        continue
                    count += 1
                    names[path] = count
                    self.step(call, "create", path, count)
                descriptors[result] = ("dir", path) if is_dir else ("file", names[path], path)
            elif name == "accept4":
                descriptors[result] = ("socket", Socket())
            elif name == "close":
                descriptors.pop(call.number(0), None)
            elif name in ("mkdir", "mkdirat"):
                path = self.path(call.strings()[0])
                if path:
                    self.step(call, "mkdir", path)
            elif name in ("rename", "renameat", "renameat2"):
                old, new = (self.path(text) for text in call.strings()[:2])
                if old in names:
                    names[new] = names.pop(old)
                    self.step(call, "rename", old, new)
            elif name in ("unlink", "unlinkat"):
                path = self.path(call.strings()[0])
                if path in names:
                    names.pop(path)
                    self.step(call, "unlink", path)
            else:
                self.on_descriptor(call, descriptors.get(call.number(0)))

    def on_descriptor(self, call, target):
        if target is None:
            return
        name, result = call.name, call.result
        if target[0] == "socket":
            if name in ("read", "recvfrom"):
                target[1].receive(b"".join(call.strings()[:1])[:result], call.ended, self.requests)
            elif name in ("write", "writev", "sendto", "sendmsg"):
                sent = b"".join(call.strings())[:result]
                self.answers.extend(target[1].send(sent, call.began))
        elif target[0] == "dir":
            if name in ("fsync", "fdatasync"):
                self.step(call, "sync_dir", target[1])
        else:
            _, file, path = target
            if name in ("pwrite64", "pwritev", "write", "writev"):
                written = b"".join(call.strings())[:result]
                if name.startswith("pw"):
                    position = int(traces.split(call.args)[-1], 0)
                    self.step(call, "write", file, position, written)
                if path.endswith(".slot"):
                    tokens = set(TOKEN.findall(written))
                    self.writes.append((call.began, call.ended, path, tokens, b"syncs-writer" in written))
            elif name in ("fdatasync", "fsync"):
                self.step(call, "sync", file)
                self.syncs.append((call.began, call.ended, path))
            elif name == "ftruncate":
                self.step(call, "truncate", file, call.number(1))

    def path(self, text):
        path = os.path.abspath(text.decode())
        return path if path == self.data or path.startswith(self.data + "/") else None

    def step(self, call, what, *arguments):
        self.steps.append((call.began, call.ended, what, arguments))

    def unsynced_acks(self):
        """(acknowledgements looked at, those whose record was not synced before they left)."""
        written = {}  # token -> its last write
        for write in self.writes:
            for token in write[3]:
                written[token] = write
        looked_at, missing = 0, []
        for api, tokens, asked, answered in self.answers:
            if api == PRODUCE and tokens:
                looked_at += 1
                for token in tokens:
                    write = written.get(token)
                    if write is None:
                        missing.append(f"{token.decode()} was answered and never written")
                    elif not self.is_synced(write, answered):
                        missing.append(f"{token.decode()}: written at line {write[1]}, answered at {answered}, no sync between")
            elif api == END_TXN:
                looked_at += 1
                ends = [write for write in self.writes if write[4] and asked < write[1] < answered]
                if not ends:
                    missing.append(f"the EndTxn that was read at line {asked} was answered and wrote nothing")
                elif not self.is_synced(ends[-1], answered):
                    missing.append(f"an EndTxn answered at line {answered} was not synced")
        return looked_at, missing

    def is_synced(self, write, before):
        """A sync of the same file that began after the write had ended, and ended before the answer began to leave."""
        return any(
            path == write[2] and began > write[1] and ended < before for began, ended, path in self.syncs
        )

    def disk_at(self, line):
        """The disk as the calls had left it when `line` of the listing was reached."""
        disk = disks.Disk(self.data)
        files = {}
        begun = {}
        for began, ended, what, arguments in self.steps:
            if ended > line:
                continue
            if what == "create":
                files[arguments[1]] = disk.create(arguments[0])
            elif what == "write":
                file = files[arguments[0]]
                file.write(arguments[1], arguments[2])
                begun.setdefault(arguments[0], []).append(ended)
            elif what == "truncate":
                files[arguments[0]].truncate(arguments[1])
                begun.setdefault(arguments[0], []).append(ended)
            elif what == "sync":
                # Only what had been written when the sync began.
                changes = begun.get(arguments[0], [])
                covered = sum(1 for change in changes if change < began)
                disk.sync_file(files[arguments[0]], covered)
                del changes[:covered]
            else:
                getattr(disk, what)(*arguments)
        return disk


def write_image(image, dirs, root, at):
    shutil.rmtree(at, ignore_errors=True)
    os.makedirs(at)
    for path in sorted(dirs):
        if path != root:
            os.makedirs(os.path.join(at, path[len(root) + 1 :]), exist_ok=True)
    for path, content in image.items():
        full = os.path.join(at, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(content)


def read_tokens(port, isolation):
    consumer = ck.Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "syncs-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "earliest",
            # A topic that is not there is an answer too.
            "allow.auto.create.topics": False,
        }
    )
    consumer.assign([ck.TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    tokens, open_partitions = set(), set(range(PARTITIONS))
    deadline = time.monotonic() + 30
    while open_partitions:
        if time.monotonic() > deadline:
            raise RuntimeError(f"partitions {open_partitions} have no end")
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            if message.error().code() == ck.KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
                continue
            if message.error().code() in (ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError._UNKNOWN_TOPIC, ck.KafkaError._UNKNOWN_PARTITION):
                break
            raise RuntimeError(str(message.error()))
        tokens.add(TOKEN.search(message.value()).group())
    consumer.close()
    return tokens


def recover_states(arguments, recording, acked, committed, rng):
    """Starts the broker on the disk at many moments; (states, what was missing)."""
    delivered = set(acked)
    # By the line at which its answer began to leave.
    acked_at = [(answered, [t for t in tokens if t in delivered]) for api, tokens, _, answered in recording.answers if api == PRODUCE]
    ends = [answered for api, _, _, answered in recording.answers if api == END_TXN]
    committed_at = list(zip(sorted(ends), committed))
    first = min(answered for answered, _ in acked_at)
    last = max(ended for _, ended, _, _ in recording.steps)
    # Right when an answer leaves is when a missing sync shows; the others anywhere.
    moments = [answered for answered, _ in acked_at] + ends
    lines = sorted(
        rng.choice(moments) if n % 2 == 0 else rng.randint(first, last) for n in range(arguments.states)
    )
    data = os.path.join(arguments.dir, "state")
    missing = []
    for n, line in enumerate(lines):
        disk = recording.disk_at(line)
        # Every third time some of what was not synced is there all the same.
        keep = (lambda _change: rng.random() < 0.5) if n % 3 == 2 else None
        write_image(disk.image(keep), disk.durable_dirs, recording.data, data)
        expected = {token for answered, tokens in acked_at if answered <= line for token in tokens}
        expected_committed = {token for answered, tokens in committed_at if answered <= line for token in tokens}
        broker = None
        try:
            broker = Broker(arguments.broker, data, os.path.join(arguments.dir, "state.log"))
            lost = expected - read_tokens(broker.port, "read_uncommitted")
            lost |= expected_committed - read_tokens(broker.port, "read_committed")
        except RuntimeError as error:
            die(f"state {n} at line {line}: {error}")
        finally:
            if broker:
                broker.kill()
        if lost:
            missing.append(f"state {n} at line {line}: {len(lost)} acknowledged records are missing, {sorted(lost)[0].decode()} first")
        if n % 25 == 24:
            say(f"{n + 1} of {len(lines)} states, {len(expected)} records acknowledged by the last of them")
    return len(lines), missing


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", required=True, help="starts the broker; {port} and {data} are filled in")
    parser.add_argument("--dir", required=True, help="an empty folder")
    parser.add_argument("--states", type=int, default=200, help="crash states to rebuild")
    parser.add_argument("--records", type=int, default=1500, help="plain records to produce")
    parser.add_argument("--transactions", type=int, default=60, help="transactions over all partitions")
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 32)
    say(f"seed {seed}")
    data = os.path.join(os.path.abspath(arguments.dir), "data")
    os.makedirs(data)
    listing = os.path.join(arguments.dir, "strace.out")
    broker = Broker(arguments.broker, data, os.path.join(arguments.dir, "broker.log"), trace=listing)
    try:
        acked, committed = load(broker.port, arguments.records, arguments.transactions)
    finally:
        broker.kill()
    recording = Recording(traces.read(listing), data)
    looked_at, unsynced = recording.unsynced_acks()
    checkpoints = sum(1 for step in recording.steps if step[2] == "rename")
    say(
        f"{recording.requests[0]} requests; {len(acked)} records acknowledged, {len(committed)} transactions committed; "
        f"{len(recording.writes)} writes to slots, {len(recording.syncs)} syncs of files, {checkpoints} renames"
    )
    enough = len(acked) >= arguments.records * 0.9 and len(committed) >= arguments.transactions * 0.9
    if not enough or looked_at < len(acked) / 20 or checkpoints < 1:
        die(f"too little happened: {looked_at} answers were found in the listing")
    states, missing = recover_states(arguments, recording, acked, committed, random.Random(seed))
    for text in (unsynced + missing)[:20]:
        say(text)
    panics = [log for log in ("broker.log", "state.log") if b"panicked" in Path(arguments.dir, log).read_bytes()]
    for log in panics:
        say(f"{log}: a broker panicked")
    total = len(unsynced) + len(missing)
    say(f"syncs: acks={looked_at} states={states} missing={total}")
    sys.exit(1 if total or panics else 0)


if __name__ == "__main__":
    main()
