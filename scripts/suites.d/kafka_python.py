"""kafka-python's test/integration, from its source distribution on PyPI.

Its fixtures take a broker that runs already (KAFKA_URI). The distribution lacks two files of the package `test`:
tests/suites/kafka-python has stand-ins.
"""

import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

from common import ROOT, Result, SuiteError, cache, must
from harness import free_port

NAME = "kafka-python"
VERSION = "3.0.12"
# The defaults of its own fixture: test/integration/fixtures.py.
SETTINGS = {"num.partitions": 4, "group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}
KAFKA_VERSION = "4.1"
SECONDS_PER_TEST = 120
OURS = ROOT / "tests" / "suites" / "kafka-python"
SECONDS = 2400

home = None


def prepare(stage):
    global home
    requirements = OURS / "requirements.txt"
    home = cache() / f"kafka-python-{VERSION}"
    if (home / "complete").exists() and (home / "complete").read_text() == requirements.read_text():
        return
    log = cache() / "kafka-python-install.log"
    log.unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    must([sys.executable, "-m", "venv", str(home / "env")], log, "a Python environment (Debian: python3-venv)")
    pip = [str(home / "env/bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    must([*pip, "download", "--no-deps", "--no-binary", ":all:", "-d", str(home), f"kafka-python=={VERSION}"], log,
         "kafka-python's source distribution")  # fmt: skip
    (archive,) = home.glob("*.tar.gz")
    must(["tar", "xzf", str(archive), "-C", str(home)], log, "unpacking kafka-python")
    must([*pip, "install", "-r", str(requirements), str(archive)], log, "kafka-python and what its tests need")
    (home / "complete").write_text(requirements.read_text())


def run(stage):
    (source,) = home.glob("kafka_python-*/")
    port = free_port()
    # One of its tests wants to see that this was set.
    broker = stage.broker(port, **{"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    broker.start()
    report, log = stage.folder / f"run{stage.number}.xml", stage.folder / f"run{stage.number}.log"
    command = [
        str(home / "env/bin/python"), "-m", "pytest", "test/integration", "-p", "no:cacheprovider", "-v",
        "--tb=native", "--timeout-method=signal",
        f"--timeout={SECONDS_PER_TEST}", f"--junitxml={report}", "-o", "junit_family=xunit1",
    ]  # fmt: skip
    if stage.options.only:
        command += ["-k", " or ".join(stage.options.only)]
    environment = {
        **os.environ,
        "KAFKA_URI": f"kafka://127.0.0.1:{broker.port}",
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_ROOT": str(home),  # where a Kafka would be started from; must be a folder
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(OURS),
        "TIDEMARK_TEST_KAFKA_PYTHON": str(source / "test"),
    }
    started = time.monotonic()
    try:
        with open(log, "wb") as out:
            subprocess.run(command, cwd=source, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                           timeout=SECONDS)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SuiteError(f"pytest was not done after {SECONDS} s; see {log}") from None
    finally:
        stage.done_with(broker, "broker.log")
    if not report.exists():
        raise SuiteError(f"pytest made no report after {int(time.monotonic() - started)} s; see {log}")
    results = [read(case) for case in xml.parse(report).iter("testcase")]
    for result in results:
        stage.say(result)
    return results


def read(case):
    module = (case.get("file") or case.get("classname", "").replace(".", "/")).split("/")[-1].removesuffix(".py")
    name = f"{module}::{case.get('name')}".replace(" ", "_")
    seconds = float(case.get("time", 0))
    for kind, outcome in (("failure", "FAIL"), ("error", "FAIL"), ("skipped", "SKIP")):
        found = case.find(kind)
        if found is not None:
            return Result(name, outcome, seconds, found.get("message") or (found.text or "").strip()[-300:])
    return Result(name, "PASS", seconds)
