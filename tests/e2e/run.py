#!/usr/bin/env python3
"""Runs the end-to-end tests with stock clients against a broker.

    tests/e2e/run.py --broker "target/release/tidemark serve --listen 127.0.0.1:{port} --data-dir {data}"
    tests/e2e/run.py --against kafka        the same tests against a real Apache Kafka: are the tests right?
    tests/e2e/run.py --list

A line per test: PASS, FAIL or SKIPPED, its name, and why. The last line: N passed, N failed, N skipped.
Needs kcat (Debian) and confluent-kafka (PyPI); a test whose client is missing is skipped by name.
"""

import argparse
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import harness  # noqa: E402

DEFAULT_BROKER = "target/release/tidemark serve --listen 127.0.0.1:{port} --data-dir {data}"
KAFKA_BROKER = "scripts/peers/kafka run --port {port} --data {data}"


def all_tests():
    here = Path(__file__).resolve().parent
    for path in sorted(here.glob("test_*.py")):
        module = importlib.import_module(path.stem)
        for name, function in vars(module).items():
            if name.startswith("test_") and callable(function):
                yield f"{path.stem.removeprefix('test_')}.{name.removeprefix('test_')}", function


def run_one(name, function, kind, command, broker):
    env = harness.Env(function.__name__, kind, command, broker)
    started = time.monotonic()
    try:
        function(env)
        outcome, why = "PASS", ""
    except harness.Skip as reason:
        outcome, why = "SKIPPED", str(reason)
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "/tests/e2e/" in f.filename]
        places = "".join(f"\n    {Path(f.filename).name}:{f.lineno}: {f.line}" for f in frames[1:])
        outcome, why = "FAIL", f"{type(error).__name__}: {error}{places}"
    finally:
        env.close_clients()
    return outcome, name, why, time.monotonic() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", choices=["tidemark", "kafka"], default="tidemark")
    parser.add_argument("--broker", help="command that starts the broker; {port} and {data} are filled in")
    parser.add_argument("--only", metavar="TEXT", action="append", help="run tests whose name contains TEXT")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time (default 2)")
    parser.add_argument("--limit", type=int, default=900, help="seconds for everything (default 900)")
    parser.add_argument("--list", action="store_true", help="print the names")
    options = parser.parse_args()

    tests = [(n, f) for n, f in all_tests() if not options.only or any(text in n for text in options.only)]
    if options.list:
        print("\n".join(name for name, _ in tests))
        return 0
    command = options.broker or (KAFKA_BROKER if options.against == "kafka" else DEFAULT_BROKER)

    def out_of_time():
        print(f"FAIL run: not finished within {options.limit} s", flush=True)
        print(f"{counts['PASS']} passed, {counts['FAIL'] + 1} failed, {counts['SKIPPED']} skipped", flush=True)
        for broker in list(harness.Broker.running):
            broker.stop(1)
        os._exit(1)

    counts = {"PASS": 0, "FAIL": 0, "SKIPPED": 0}
    watchdog = threading.Timer(options.limit, out_of_time)
    watchdog.daemon = True
    watchdog.start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    shared = harness.Broker(options.against, command, {"group.initial.rebalance.delay.ms": 0})
    try:
        shared.start()
        with ThreadPoolExecutor(options.jobs) as pool:
            jobs = [pool.submit(run_one, n, f, options.against, command, shared) for n, f in tests]
            for job in jobs:
                outcome, name, why, seconds = job.result()
                counts[outcome] += 1
                print(f"{outcome} {name} ({seconds:.1f} s)" + (f": {why}" if why else ""), flush=True)
    except RuntimeError as error:
        counts["FAIL"] += 1
        print(f"FAIL broker: {error}", flush=True)
    finally:
        code = shared.stop()
        panics = shared.panics()
        if panics:
            counts["FAIL"] += 1
            print(f"FAIL broker: panicked: {panics[0]}")
        if options.against == "tidemark" and code not in (0, None):
            counts["FAIL"] += 1
            print(f"FAIL broker: SIGTERM ended it with {code}, not 0: {shared.tail()}")
        shared.remove()
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIPPED']} skipped", flush=True)
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
