"""The rdkafka crate's tests/, on librdkafka, from the crate that Cargo.lock pins."""

import json
import os
import re
import shutil
import subprocess
import time

from common import ROOT, Result, SuiteError, cache, crate_source
from harness import free_port

NAME = "rust-rdkafka"
VERSION = ""  # known when Cargo.lock was read
# Its docker-compose.yaml.
SETTINGS = {"node.id": 0, "num.partitions": 3}
KAFKA_VERSION = "4.0"
SECONDS_PER_FILE = 900

programs = []


def prepare(stage):
    global VERSION, programs
    source, VERSION = crate_source("rdkafka")
    home = cache() / f"rust-rdkafka-{VERSION}"
    if not home.exists():
        shutil.copytree(source, home)
    environment = {**os.environ, "CARGO_TARGET_DIR": str(home / "target")}
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        environment["CXX"] = str(ROOT / "scripts/cxx-unneeded")
    log = cache() / "rust-rdkafka-build.log"
    with open(log, "wb") as errors:
        done = subprocess.run(["cargo", "test", "--no-run", "--message-format=json"], cwd=home, env=environment,
                              stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True)  # fmt: skip
    if done.returncode:
        raise SuiteError(f"the rdkafka crate's tests did not build; see {log}")
    built = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    programs = sorted(
        (message["target"]["name"], message["executable"])
        for message in built
        if message.get("reason") == "compiler-artifact" and message.get("executable") and message["profile"]["test"]
        and message["target"]["kind"] != ["example"]
    )  # fmt: skip


def run(stage):
    # test_metadata wants the broker at the port of its docker-compose.yaml.
    port = 9092
    broker = stage.broker(port=port if is_free(port) else free_port())
    broker.start()
    results = []
    try:
        for file, program in programs:
            results += one(stage, broker, file, program)
    finally:
        stage.done_with(broker, "broker.log")
    return results


def is_free(port):
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def one(stage, broker, file, program):
    environment = {
        **os.environ,
        "KAFKA_HOST": broker.address,
        "KAFKA_VERSION": KAFKA_VERSION,
        "RUST_LOG": "off",
        "RUST_BACKTRACE": "0",
    }
    listed = subprocess.run([program, "--list", "--format=terse"], capture_output=True, text=True, env=environment)
    names = [line.rsplit(": ", 1)[0] for line in listed.stdout.splitlines() if line.endswith(": test")]
    results = []
    # One process each: a test that fails can leave threads behind that are in the way of the next.
    for name in names:
        label = f"{file}::{name}"
        if not stage.wanted(label):
            continue
        log = stage.folder / f"{file}.{name.replace('::', '.')}.{stage.number}.log"
        started = time.monotonic()
        try:
            with open(log, "wb") as out:
                subprocess.run([program, "--exact", name, "--test-threads=1"], env=environment, stdout=out, stderr=out,
                               stdin=subprocess.DEVNULL, timeout=SECONDS_PER_FILE)  # fmt: skip
            text = log.read_text(errors="replace")
            result = read(label, name, text, time.monotonic() - started)
        except subprocess.TimeoutExpired:
            result = Result(label, "FAIL", SECONDS_PER_FILE, f"not done after {SECONDS_PER_FILE} s; see {log}")
        stage.say(result)
        results.append(result)
    return results


def read(label, name, text, seconds):
    told = re.search(rf"^test {re.escape(name)} (?:- should panic )?\.\.\. (ok|FAILED|ignored)(?:, (.*))?$", text, re.M)
    if told and told.group(1) == "ok":
        return Result(label, "PASS", seconds)
    if told and told.group(1) == "ignored":
        return Result(label, "SKIP", seconds, told.group(2) or "ignored by its author")
    panic = re.search(r"panicked at (.*)\n(.*(?:\n\s+(?:left|right): .*)*)", text)
    return Result(label, "FAIL", seconds, f"{panic.group(2)} [{panic.group(1)}]" if panic else text[-300:])
