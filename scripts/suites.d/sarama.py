"""What sarama's functional tests try with transactions, rewritten for one broker (tests/suites/sarama): its own want a
cluster of five in containers. `kill` and `start` of the broker are asked for over a socket."""

import os
import re
import socket
import subprocess
import threading
import time

from common import ROOT, SuiteError, cache, must
from franz_go import read
from harness import free_port

NAME = "sarama"
VERSION = ""  # known when its go.mod was read
SETTINGS = {"num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
SECONDS_PER_RUN = 900
HOME = ROOT / "tests" / "suites" / "sarama"

program = None


def prepare(stage):
    global program, VERSION
    VERSION = re.search(r"IBM/sarama (\S+)", (HOME / "go.mod").read_text()).group(1)
    program = cache() / f"sarama-{VERSION}.test"
    try:
        subprocess.run(["go", "version"], capture_output=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        raise SuiteError("go is missing") from None
    must(["go", "test", "-c", "-vet=all", "-o", str(program), "."], cache() / "sarama-build.log", "sarama's scenarios",
         cwd=HOME, env={"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"})  # fmt: skip


class Control(threading.Thread):
    """Does to the broker what a test asks for, a word a connection."""

    def __init__(self, broker):
        super().__init__(daemon=True)
        self.broker = broker
        self.listener = socket.create_server(("127.0.0.1", free_port()))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]

    def run(self):
        words = {"kill": self.broker.kill, "start": self.broker.start, "restart": self.broker.restart_after_kill}
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                word = connection.makefile().readline().strip()
                try:
                    words[word]()
                    answer = "ok"
                except (KeyError, RuntimeError) as error:
                    answer = " ".join(str(error).split())
                connection.sendall(f"{answer}\n".encode())


def run(stage):
    broker = stage.broker()
    broker.start()
    control = Control(broker)
    control.start()
    environment = {**os.environ, "SARAMA_BROKER": broker.address, "SARAMA_CONTROL": control.address}
    log = stage.folder / f"run{stage.number}.log"
    command = ["go", "tool", "test2json", "-t", str(program), "-test.v=test2json", f"-test.timeout={SECONDS_PER_RUN}s"]
    if stage.options.only:
        command.append(f"-test.run={'|'.join(stage.options.only)}")
    started = time.monotonic()
    try:
        with open(log, "wb") as out:
            subprocess.run(command, cwd=HOME, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                           timeout=SECONDS_PER_RUN + 60)  # fmt: skip
    except subprocess.TimeoutExpired:
        pass  # what did not end has no result, and is told so
    finally:
        control.listener.close()
        stage.done_with(broker, f"run{stage.number}.broker.log")
    results = read(log, time.monotonic() - started)
    for result in results:
        stage.say(result)
    return results
