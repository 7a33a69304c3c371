"""What the proofs with Java programs share: options, processes that are killed, faults, a reader of whole topics, and an
end in which every process that was started has ended."""

import argparse
import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e")]

import confluent_kafka as ck  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from harness import Broker, eventually  # noqa: E402, F401


# Under kill -9 a program may give up, and is started again: for every so many kills one may, and one more.
KILLS_PER_OWN_END = 20


def parser_of(doc, rate, seconds, rate_help):
    """The options that all of them have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", required=True, help="command that starts the broker; {port} and {data} are filled in")
    parser.add_argument("--jars", required=True, help="folder with the jars of Kafka's tools and of Kafka Streams")
    parser.add_argument("--dir", required=True, help="an empty folder for state and logs")
    parser.add_argument("--seconds", type=int, default=60, help=f"{seconds} (default 60)")
    parser.add_argument("--rate", type=int, default=rate, help=f"{rate_help} (default {rate})")
    parser.add_argument("--seed", type=int, default=1, help="of the times of the kills (default 1)")
    return parser


@contextlib.contextmanager
def all_ended():
    """However it is left, by SIGTERM too: no process that was started is there afterwards."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        for java in list(Java.running):
            java.stop(2)
        for broker in list(Broker.running):
            broker.stop(5)
            broker.remove()


def own_ends_within_bound(what, ends, kills):
    """What is wrong when programs, or threads of them, gave up more often than a kill excuses: a list."""
    most = 1 + kills // KILLS_PER_OWN_END
    return [f"{what}: {ends} gave up by themselves; at {kills} kills at most {most} may"] if ends > most else []


def compile_java(source, jars, folder):
    done = subprocess.run(["javac", "-d", str(folder), "-cp", f"{jars}/*", str(source)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{source.name} does not compile:\n{done.stdout}{done.stderr}")


class Java:
    """A Java program as a process that can be killed and started again."""

    running = set()

    def __init__(self, name, classpath, main, arguments, folder, megabytes=256):
        self.name, self.log = name, folder / f"{name}.log"
        (folder / "tmp").mkdir(exist_ok=True)  # where RocksDB unpacks its library
        self.command = ["java", f"-Xmx{megabytes}M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
                        f"-Djava.io.tmpdir={folder / 'tmp'}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                        "-cp", classpath, main, *map(str, arguments)]  # fmt: skip
        self.process = None
        # Ends with an error that nobody asked for; each is found when the program is started again.
        self.kills = self.own_ends = 0
        self.asked = False

    def start(self):
        if self.process and not self.asked and self.process.returncode:
            self.own_ends += 1
        self.asked = False
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        Java.running.add(self)
        return self

    def ended(self):
        return self.process.poll() is not None

    def kill(self):
        """SIGKILL; True when the process was still there."""
        there = not self.ended()
        if there:
            self.process.send_signal(signal.SIGKILL)
            self.kills += 1
            self.asked = True
        self.process.wait()
        Java.running.discard(self)
        return there

    def stop(self, seconds=30):
        if not self.ended():
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        Java.running.discard(self)
        return self.process.returncode

    def tail(self):
        return self.log.read_text(errors="replace")[-1500:] if self.log.exists() else ""


class Faults(threading.Thread):
    """Every few seconds a SIGKILL: of a program, or of the broker. What was killed is started again at once; a program
    that ended by itself is started again as well, and counted."""

    def __init__(self, programs, broker, seed, between):
        super().__init__(daemon=True)
        self.programs, self.broker, self.between = programs, broker, between
        self.random = random.Random(seed)
        self.turn = threading.Lock()
        self.over = threading.Event()
        self.broker_kills, self.error = 0, None

    def run(self):
        turn = 0
        try:
            while not self.over.wait(self.random.uniform(*self.between)):
                turn += 1
                with self.turn:
                    # Both happen, however short the run is; without programs only the broker is killed.
                    if self.broker and (turn % 2 == 0 or not self.programs):
                        self.broker.restart_after_kill()
                        self.broker_kills += 1
                    else:
                        self.random.choice(self.programs).kill()
                    self.revive()
        except Exception as error:  # the run is told of it when it ends
            self.error = error

    def revive(self):
        for program in self.programs:
            # One that said it was done is done.
            if program.ended() and program.process.returncode != 0:
                program.start()

    def spare_programs(self):
        """From here on only the broker is killed; the programs run, or have said that they are done."""
        with self.turn:
            self.revive()
            self.programs = []

    def end(self):
        self.over.set()
        self.join()
        if self.error:
            raise RuntimeError(f"a restart failed: {self.error}") from self.error


def create_topics(address, partitions, **topics):
    """Creates topics; `topics` are names with their configurations."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    wanted = [NewTopic(name, partitions, 1, config=config) for name, config in topics.items()]
    for future in admin.create_topics(wanted, operation_timeout=30, request_timeout=30).values():
        future.result(40)


def consumer(address, group):
    return ck.Consumer({
        "bootstrap.servers": address, "group.id": group, "isolation.level": "read_committed", "log_level": 2,
        "enable.auto.commit": False, "auto.offset.reset": "error", "enable.partition.eof": True,
        "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500, "metadata.recovery.strategy": "none",
        "error_cb": lambda error: None, "fetch.wait.max.ms": 100,
    })  # fmt: skip


def read_all(address, topic, partitions, seconds=120):
    """What a new read_committed reader finds in a topic, from its begin to its end: the messages of each partition."""
    reader = consumer(address, f"all-{topic}")
    reader.assign([ck.TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found, open_ends = [[] for _ in range(partitions)], set(range(partitions))
    deadline = time.monotonic() + seconds
    while open_ends:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic} was not read within {seconds} s; partitions {sorted(open_ends)} have no end")
        for message in reader.consume(5000, 1.0):
            if message.error() is None:
                found[message.partition()].append(message)
            elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                open_ends.discard(message.partition())
            elif not message.error().retriable():
                raise RuntimeError(f"{topic}: {message.error()}")
    reader.close()
    return found


class Numbers:
    """Checks sequences 0, 1, 2 ... : what is lost, what is there twice, what is out of order."""

    def __init__(self):
        self.lost = self.duplicated = self.out_of_order = 0
        self.examples = []

    def check(self, what, numbers, count):
        seen, highest = set(), -1
        for place, number in enumerate(numbers):
            if number in seen:
                self.duplicated += 1
                self.example(f"{what}: {number} again, at place {place}")
            elif number < highest:
                self.out_of_order += 1
                self.example(f"{what}: {number} after {highest}, at place {place}")
            seen.add(number)
            highest = max(highest, number)
        missing = count - len(seen & set(range(count)))
        strange = len(seen) - (count - missing)
        if missing:
            first = next(n for n in range(count) if n not in seen)
            self.example(f"{what}: {missing} of {count} are missing, the first is {first}")
        if strange:
            self.example(f"{what}: {strange} that nobody wrote, the highest is {highest}")
        self.lost += missing
        self.duplicated += strange

    def example(self, text):
        self.examples.append(text)

    def tell(self, wrong):
        for text in [*self.examples[:20], *wrong]:
            print(f"WRONG {text}", flush=True)
        return f"lost={self.lost} duplicated={self.duplicated} out_of_order={self.out_of_order}"
