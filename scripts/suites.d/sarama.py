"""What sarama's functional tests try with transactions, rewritten for one broker (tests/suites/sarama): its own want a
cluster of five in containers. `kill` and `start` of the broker are asked for over a socket."""

import re
import shutil
import socket
import threading

from common import ROOT, SuiteError, build_go_tests, cache, run_go_tests
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
    if not shutil.which("go"):
        raise SuiteError("go is missing")
    build_go_tests("sarama's scenarios", HOME, program, "-vet=all")


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
    environment = {"SARAMA_BROKER": broker.address, "SARAMA_CONTROL": control.address}
    try:
        results = run_go_tests(stage, program, HOME, environment, SECONDS_PER_RUN)
    finally:
        control.listener.close()
        stage.done_with(broker, f"run{stage.number}.broker.log")
    for result in results:
        stage.say(result)
    return results
