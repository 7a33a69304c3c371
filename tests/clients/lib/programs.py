"""The clients' programs: how they are fetched, started and spoken to, and what a step of the scenario sees of them."""

import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path

from scenario import ClientError, NoWord, brief
from wire import committed_view, create_topic

HERE = Path(__file__).resolve().parents[1]
BROKERS = {
    "tidemark": "target/release/tidemark serve --listen 127.0.0.1:{port} --data-dir {data}",
    "kafka": "scripts/peers/kafka run --port {port} --data {data}",
}
SECONDS_PER_VERB = 75


def cache():
    base = os.environ.get("TIDEMARK_TEST_CACHE_DIR")
    if not base:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidemark"
    path = Path(base) / "clients"
    path.mkdir(parents=True, exist_ok=True)
    return path


class Program:
    """The client's program, spoken to by verbs."""

    def __init__(self, name, address, log, environment=None):
        self.name = name
        self.log = log
        self.process = subprocess.Popen(
            [str(HERE / name / "start"), "run", address], cwd=HERE / name, text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(log, "ab"),
            env={**os.environ, "TIDEMARK_TEST_CLIENTS": str(cache()), **(environment or {})},
        )  # fmt: skip
        self.answers = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            self.answers.put(line.rstrip("\n"))
        self.answers.put(None)

    def do(self, *words):
        said = "\t".join(str(word) for word in words)
        try:
            self.process.stdin.write(said + "\n")
            self.process.stdin.flush()
            answer = self.answers.get(timeout=SECONDS_PER_VERB)
        except queue.Empty:
            self.kill()
            raise ClientError("other", f"`{brief(said)}` was not answered within {SECONDS_PER_VERB} s") from None
        except OSError:
            answer = None
        if answer is None:
            raise ClientError("other", f"the program ended at `{brief(said)}`; its log: {self.log}")
        kind, *values = answer.split("\t")
        if kind == "ok":
            return values
        if kind == "none":
            raise NoWord(values[0])
        raise ClientError(values[0], f"{brief(said)}: {brief(' '.join(values[1:]))}")

    def read(self, topic, level, last, ms=20000, partition=0):
        return self.do("read", topic, partition, level, last, ms)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def end(self):
        if self.process.poll() is None:
            try:
                self.process.stdin.close()
                self.process.wait(5)
            except (OSError, subprocess.TimeoutExpired):
                self.kill()


class Stage:
    """What a step sees: programs of one client, the proxy in front of the broker, fresh names."""

    def __init__(self, client, name, proxy, direct, folder, environment=None):
        self.name, self.client_name, self.proxy, self.direct = name, client, proxy, direct
        self.log = folder / f"{client}.{name}.log"
        self.environment = environment  # of the programs: how they authenticate
        self.programs, self.count, self.remark = [], 0, ""

    def fresh(self, what):
        self.count += 1
        return f"{what}-{self.client_name}-{self.name}-{self.count}"

    def topic(self, partitions=1):
        name = self.fresh("t")
        create_topic(self.direct, name, partitions)
        return name

    def client(self):
        program = Program(self.client_name, self.proxy.address, self.log, self.environment)
        self.programs.append(program)
        return program

    def committed(self, program, topic, last):
        """What a read_committed reader sees up to the value `last`: the client, or, for want of one, the scenario."""
        try:
            return program.read(topic, "read_committed", last)
        except NoWord:
            self.remark = "read by the scenario"
            self.until(lambda: last in committed_view(self.direct, topic), f"{last} is committed", 10)
            return committed_view(self.direct, topic)

    def until(self, check, what, seconds):
        deadline = time.monotonic() + seconds
        while not check():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {what}")
            time.sleep(0.1)

    def end(self):
        for program in self.programs:
            program.end()


def install(client, seconds):
    """Fetches and builds the client; returns why it could not, or nothing."""
    log = cache() / f"install-{client}.log"
    with open(log, "wb") as out:
        # A group of its own: what it starts (a compiler, a package manager) ends with it.
        process = subprocess.Popen(
            [str(HERE / client / "start"), "install"], cwd=HERE / client, stdout=out, stderr=out,
            stdin=subprocess.DEVNULL, env={**os.environ, "TIDEMARK_TEST_CLIENTS": str(cache())},
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"not fetched within {seconds} s; {log.read_text(errors='replace')[-300:]}"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return f"exit {code}: {log.read_text(errors='replace')[-600:]}" if code else ""
