"""franz-go's package kgo: unit tests, and tests that need a broker, with TestTxnEtl and TestGroupETL among them."""

import json
import os
import subprocess

from common import Result, SuiteError, build_go_tests, cache, run_go_tests
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
        build_go_tests("franz-go's tests", package, program)


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
        "KGO_SEEDS": address,
        "KGO_TEST_RF": "1",
        "KGO_TEST_UNSAFE": "1",
        "KGO_TEST_RECORDS": str(stage.options.records),
        "KGO_LOG_LEVEL": os.environ.get("KGO_LOG_LEVEL", "none"),
    }
    killer = Killer(broker, stage.seed) if stage.options.kill else None
    if killer:
        killer.start()
    try:
        results = run_go_tests(stage, program, package, environment, SECONDS_PER_RUN)
    finally:
        if killer:
            killer.end()
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
