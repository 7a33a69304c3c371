"""franz-go's package kgo: unit tests, and tests that need a broker, with TestTxnEtl and TestGroupETL among them."""

import json
import os
import subprocess
import time

from common import Result, SuiteError, cache, must
from harness import free_port
from killer import Killer, Relay

NAME = "franz-go"
VERSION = "v1.22.3"
SETTINGS = {"num.partitions": 3, "group.initial.rebalance.delay.ms": 0}
SECONDS_PER_RUN = 1200

program = None
package = None


def prepare(stage):
    global program, package
    try:
        done = subprocess.run(
            ["go", "mod", "download", "-json", f"github.com/twmb/franz-go@{VERSION}"], capture_output=True, text=True,
            cwd="/", env={**os.environ, "GOFLAGS": "-mod=mod"},
        )  # fmt: skip
    except FileNotFoundError:
        raise SuiteError("go is missing") from None
    if done.returncode:
        raise SuiteError(f"go mod download: {done.stderr.strip()[-400:]}{done.stdout.strip()[-400:]}")
    package = json.loads(done.stdout)["Dir"] + "/pkg/kgo"
    program = cache() / f"franz-go-{VERSION}.test"
    if not program.exists():
        must(["go", "test", "-c", "-o", str(program), "."], cache() / "franz-go-build.log", "franz-go's tests",
             cwd=package, env={"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"})  # fmt: skip


broker = None
address = None


def run(stage):
    """All runs use one broker, whose data grows from run to run."""
    global broker, address
    if broker is None:
        relay = Relay(free_port()) if stage.options.kill else None
        broker = stage.broker(**({"advertised.listeners": f"PLAINTEXT://{relay.address}"} if relay else {}))
        broker.start()
        address = broker.address
        print(f"KGO_TEST_RF=1 KGO_TEST_UNSAFE=1 KGO_TEST_RECORDS={stage.options.records}", flush=True)
        if relay:
            relay.broker_port, address = broker.port, relay.address
    environment = {
        **os.environ,
        "KGO_SEEDS": address,
        "KGO_TEST_RF": "1",
        "KGO_TEST_UNSAFE": "1",
        "KGO_TEST_RECORDS": str(stage.options.records),
        "KGO_LOG_LEVEL": os.environ.get("KGO_LOG_LEVEL", "none"),
    }
    log = stage.folder / f"run{stage.number}.log"
    command = ["go", "tool", "test2json", "-t", str(program), "-test.v=test2json", f"-test.timeout={SECONDS_PER_RUN}s"]
    if stage.options.only:
        command.append(f"-test.run={'|'.join(stage.options.only)}")
    killer = Killer(broker, stage.seed) if stage.options.kill else None
    started = time.monotonic()
    if killer:
        killer.start()
    try:
        with open(log, "wb") as out:
            subprocess.run(command, cwd=package, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                           timeout=SECONDS_PER_RUN + 60)  # fmt: skip
    except subprocess.TimeoutExpired:
        pass  # what did not end has no result, and is told so
    finally:
        if killer:
            killer.end()
    results = read(log, time.monotonic() - started)
    if killer:
        stage.killed = killer.kills
        print(f"kills: {killer.kills}", flush=True)
        if killer.error:
            results.append(Result("restart", "FAIL", 0, f"the broker did not start again: {killer.error}"))
        elif not killer.kills:
            results.append(Result("restart", "FAIL", 0, "no kill fell into the run"))
    if stage.number == stage.options.repeat or any(r.outcome == "FAIL" for r in results):
        stage.done_with(broker, "broker.log")
        broker = None
    for result in results:
        if stage.options.repeat == 1 or result.outcome == "FAIL":
            stage.say(result)
    return results


def read(log, seconds):
    tests, said = {}, {}
    for line in log.read_text(errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        name, action = event.get("Test"), event.get("Action")
        if not name:
            continue
        if action == "run":
            tests[name] = Result(name, "FAIL", seconds, f"did not end within {int(seconds)} s; see {log}")
        elif action == "output":
            said.setdefault(name, []).append(event["Output"].strip())
        elif action in ("pass", "fail", "skip"):
            why = "" if action == "pass" else reason(said.get(name, []))
            tests[name] = Result(name, action.upper(), event.get("Elapsed", 0), why)
    for name, result in tests.items():
        parts = [part for part in tests.values() if part.name.startswith(f"{name}/")]
        if "/" not in name and parts and result.outcome == "PASS" and all(part.outcome == "SKIP" for part in parts):
            result.outcome, result.why = "SKIP", "all its parts are skipped"
    return list(tests.values())


def reason(lines):
    return " ".join(line for line in lines if line and not line.startswith(("=== ", "--- ")))[:300]
