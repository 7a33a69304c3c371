"""The scenario's verbs (tests/clients/lib/scenario.py), put to kcat. A transaction is one run of kcat: it begins with
the first line, commits at the end of its input and aborts when it is interrupted."""

import ctypes
import re
import selectors
import signal
import subprocess
import sys
import threading
import time

from verbs import NoWord, serve

# kcat looks at its input when it has this much of it, and passes over empty lines.
TO_BE_READ = "\n" * 2048
BROKER = sys.argv[1]
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
producers, received, assigned = {}, [], set()


class Failed(Exception):
    pass


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def kcat(*arguments, **options):
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    command = ["kcat", "-b", BROKER, "-X", "reconnect.backoff.ms=20", "-X", "reconnect.backoff.max.ms=200", *arguments]
    return subprocess.Popen(command, preexec_fn=die_with_parent, **options)


def kind(error):
    fenced = re.search("fenced|_FENCED|stale|newer instance|Producer attempted an operation with an old epoch", str(error))
    return "fenced" if fenced else "fatal" if "atal" in str(error) else "other"


def hello():
    text = subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout
    version, library = re.search(r"Version (\S+) .*librdkafka (\S+)", text).groups()
    return ["kcat", version, "librdkafka", library]


def producer(name, how, transactional_id=None):
    options = {
        "plain": [],
        "idempotent": ["-X", "enable.idempotence=true"],
        "transactional": ["-X", f"transactional.id={transactional_id}"],
    }.get(how, ["-z", how])
    producers[name] = {"options": options, "run": None, "topic": None, "begun": False}


def finish(run):
    _, said = run.communicate(timeout=60)
    print(said, file=sys.stderr)
    if run.returncode:
        raise Failed(said)


def send(name, topic, partition, *values):
    one = producers[name]
    lines = "".join(f"{value}\n" for value in values)
    if not one["begun"]:
        run = kcat("-P", "-t", topic, "-p", partition, *one["options"], stdin=subprocess.PIPE)
        run.stdin.write(lines)
        finish(run)
        return
    if one["run"] is None:
        options = ["-X", "linger.ms=0", *one["options"]]
        one["run"], one["topic"] = kcat("-P", "-t", topic, "-p", partition, *options, stdin=subprocess.PIPE), topic
    if topic != one["topic"]:
        raise NoWord("one topic per transaction")
    try:
        one["run"].stdin.write(lines + TO_BE_READ)
        one["run"].stdin.flush()
    except BrokenPipeError:
        return  # the end of the transaction tells why
    # kcat does not say when a record is acknowledged: look for it.
    deadline = time.monotonic() + 10
    while values[-1] not in read(topic, partition, "read_uncommitted", values[-1], 1000):
        if one["run"].poll() is not None or time.monotonic() > deadline:
            return


def begin(name):
    producers[name]["begun"] = True


def commit(name):
    run, producers[name]["run"], producers[name]["begun"] = producers[name]["run"], None, False
    finish(run)


def abort(name):
    run, producers[name]["run"], producers[name]["begun"] = producers[name]["run"], None, False
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)
    print(said, file=sys.stderr)


def read(topic, partition, level, last, ms):
    values, left, deadline = [], b"", time.monotonic() + int(ms) / 1000
    options = ["-o", "beginning", "-u", "-q", "-f", "%s\n", "-X", f"isolation.level={level}"]
    run = kcat("-C", "-t", topic, "-p", partition, *options, text=False, stderr=None)
    with selectors.DefaultSelector() as ready:
        ready.register(run.stdout, selectors.EVENT_READ)
        while last not in values and (wait := deadline - time.monotonic()) > 0:
            if ready.select(wait):
                left += run.stdout.read1(65536)
                *lines, left = left.split(b"\n")
                values += [line.decode() for line in lines]
    run.kill()
    run.wait()
    return values


def join(group, topic):
    options = ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=500"]
    run = kcat("-G", group, *options, "-u", "-f", "%s\n", topic)

    def watch():
        for line in run.stderr:
            print(line, end="", file=sys.stderr)
            if "assigned:" in line:
                assigned.update(re.findall(r"\[(\d+)\]", line.split("assigned:")[1]))
            if "revoked:" in line:
                assigned.difference_update(re.findall(r"\[(\d+)\]", line.split("revoked:")[1]))

    threading.Thread(target=watch, daemon=True).start()
    threading.Thread(target=lambda: received.extend(map(str.rstrip, run.stdout)), daemon=True).start()


def no_word(reason):
    def verb(*_):
        raise NoWord(reason)

    return verb


serve(
    {
        "hello": hello,
        "reconnects": no_word("kcat ends itself when its connections are cut"),
        "codecs": lambda: ["none", "gzip", "snappy", "lz4", "zstd"],
        "producer": producer,
        "send": send,
        "many": lambda name, topic, partition, prefix, count: send(
            name, topic, partition, *[f"{prefix}{i}" for i in range(int(count))]
        ),
        "begin": begin,
        "commit": commit,
        "abort": abort,
        "close": producers.pop,
        "process": no_word("kcat cannot send offsets to a transaction"),
        "committed": no_word("kcat cannot ask for a group's offsets"),
        "read": read,
        "join": join,
        "assignment": lambda: sorted(assigned),
        "received": lambda: [*received],
        "create-topic": no_word("kcat has no admin"),
        "describe-config": no_word("kcat has no admin"),
    },
    kind,
)
