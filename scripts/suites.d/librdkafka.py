"""librdkafka's tests/: C and C++, from the crate rdkafka-sys, which brings librdkafka's whole source.

Each test file runs in a process and on a broker of its own, so that one that hangs or aborts is one result. Its runner
skips what asks for another scenario: those run again with topics not created by asking.
"""

import json
import os
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from common import ROOT, Result, SuiteError, cache, crate_source, must

NAME = "librdkafka"
VERSION = ""  # known when Cargo.lock was read
# tests/scenarios/default.json of librdkafka with one broker, segments as small as Kafka had them before 4.0 (0129 asks
# for 20,000 bytes).
SETTINGS = {
    "num.partitions": 4,
    "default.replication.factor": 3,
    "replication.factor.clamp": "true",
    "segment.bytes.min": 14,
    # 0077 gives compaction 20 seconds; of what was written since the last checkpoint nothing is compacted.
    "checkpoint.interval.ms": 2000,
    # With 0, what 0113 starts together would come one after the other.
    "group.initial.rebalance.delay.ms": 1000,
}
SCENARIOS = {"default": "true", "noautocreate": "false"}
# The version of Kafka that the tests take the broker for.
KAFKA_VERSION = "4.1.0"
# Of the tools that tests call: those of Kafka 4 refuse segments as small as 0077 asks for before a broker is asked.
TOOLS_VERSION = "3.9.1"
SECONDS_PER_FILE = 1200
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

home = None


def prepare(stage):
    global VERSION, home
    source, version = crate_source("rdkafka-sys")
    VERSION = version.split("+")[-1]
    for header, package in (("rapidjson/document.h", "rapidjson-dev"), ("zstd.h", "libzstd-dev"),
                            ("zlib.h", "zlib1g-dev"), ("openssl/ssl.h", "libssl-dev")):  # fmt: skip
        if not os.path.exists(f"/usr/include/{header}"):
            raise SuiteError(f"{header} is missing; as root: apt-get install -y {package}")
    home = cache() / f"librdkafka-{VERSION}"
    if not (home / "complete").exists():
        log = cache() / "librdkafka-build.log"
        log.unlink(missing_ok=True)
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(source / "librdkafka", home)
        print("building librdkafka and its tests (minutes)", flush=True)
        must(["./configure"], log, "librdkafka", cwd=home)
        must(["make", "-j2", "libs"], log, "librdkafka", cwd=home)
        must(["make", "-j2", "-C", "tests", "build"], log, "librdkafka's tests", cwd=home)
        kafka_home(log)
        must(["make", "-C", "tests", "java"], log, "librdkafka's Java helpers", cwd=home,
             env={"KAFKA_PATH": str(home / "kafka")})  # fmt: skip
        (home / "complete").touch()


def kafka_home(log):
    """A folder like a Kafka distribution's, for tests that call its tools: jars from Maven, and the start scripts."""
    done = subprocess.run([str(ROOT / "scripts/peers/kafka"), "fetch"], capture_output=True, text=True)
    if done.returncode:
        raise SuiteError(f"scripts/peers/kafka fetch: {done.stderr.strip()[-400:]}")
    jars = done.stdout.split()[-1] + "/libs"
    distribution, tools = home / "kafka", home / "kafka-tools"
    for folder in (distribution / "bin", tools):
        folder.mkdir(parents=True)
    (tools / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tidemark.suites</groupId><artifactId>kafka-tools</artifactId><version>1</version><dependencies>"
        + "".join(
            f"<dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{TOOLS_VERSION}</version></dependency>"
            for artifact in ("kafka-tools", "kafka_2.13")
        )
        + "</dependencies></project>"
    )
    must(["mvn", "-q", "-B", "-f", str(tools / "pom.xml"),
          "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies", "-DincludeScope=runtime",
          f"-DoutputDirectory={tools}/libs"], log, "Kafka's tools")  # fmt: skip
    (distribution / "libs").symlink_to(jars)
    scripts = {
        "kafka-run-class.sh": (jars, ""),
        "kafka-topics.sh": (f"{tools}/libs", " org.apache.kafka.tools.TopicCommand"),
        "kafka-acls.sh": (f"{tools}/libs", " kafka.admin.AclCommand"),
    }
    for script, (libs, main) in scripts.items():
        path = distribution / "bin" / script
        path.write_text(f'#!/bin/sh\nexec java -Xmx256M -cp "{libs}/*:${{CLASSPATH:-}}"{main} "$@"\n')
        path.chmod(0o755)


def registered():
    """Test files by number: their tests, and whether some ask for another scenario, from the runner's own table."""
    table = (home / "tests" / "test.c").read_text()
    table = table[table.index("struct test tests[] = {") : table.index("/* Manual tests */\n    _TEST(")]
    files = {}
    for entry in re.finditer(r"_TEST\((\w+)(.*?)\),?\n(?=\s*(?:_TEST|#|$|/\*|\{|\Z))", table, re.S):
        name, rest = entry.groups()
        scenario = re.search(r'\.scenario\s*=\s*"([^"]*)"', rest)
        files.setdefault(name[:4], {})[name] = scenario.group(1) if scenario else "default"
    if len(files) < 100:
        raise SuiteError("the table of tests in librdkafka's test.c is not as it was")
    return files


def run(stage):
    jobs = []
    for number, tests in registered().items():
        for scenario in SCENARIOS:
            names = [name for name, wants in tests.items() if scenario in wants.split(",") and stage.wanted(name)]
            if names:
                jobs.append((number, scenario, names))
    results = []
    with ThreadPoolExecutor(stage.options.jobs) as pool:
        for found in pool.map(lambda job: one(stage, *job), jobs):
            results += found
    return results


def one(stage, number, scenario, names):
    label = f"{number}.{scenario}.{stage.number}"
    broker = stage.broker(**{"auto.create.topics.enable": SCENARIOS[scenario]})
    log, report = stage.folder / f"{label}.log", stage.folder / f"{label}.json"
    conf = stage.folder / f"{label}.conf"
    started = time.monotonic()
    why = ""
    try:
        broker.start()
        conf.write_text(f"bootstrap.servers={broker.address}\ntest.timeout.multiplier={stage.options.patience}\n")
        environment = {
            **os.environ,
            "RDKAFKA_TEST_CONF": str(conf),
            "TEST_KAFKA_VERSION": KAFKA_VERSION,
            "TEST_SCENARIO": scenario,
            "TEST_REPORT": str(report),
            "TESTS": number,
            "BROKERS": broker.address,
            "KAFKA_PATH": str(home / "kafka"),
            "LD_LIBRARY_PATH": f"{home}/src:{home}/src-cpp",
        }
        with open(log, "wb") as out:
            subprocess.run(["./test-runner", "-p1"], cwd=home / "tests", env=environment, stdout=out, stderr=out,
                           stdin=subprocess.DEVNULL, timeout=SECONDS_PER_FILE)  # fmt: skip
    except subprocess.TimeoutExpired:
        why = f"not done after {SECONDS_PER_FILE} s"
    except RuntimeError as error:
        why = str(error)
    finally:
        stage.done_with(broker, f"{label}.broker.log")
    for leftover in (home / "tests").glob(f"stats_{number}_*.json"):
        leftover.unlink(missing_ok=True)
    results = read(names, log, report, why, time.monotonic() - started)
    for result in results:
        stage.say(result)
    return results


def read(names, log, report, why, seconds):
    text = COLOURS.sub("", log.read_text(errors="replace")) if log.exists() else ""
    try:
        told = json.loads(report.read_text().replace("\n", " "), strict=False)["tests"]
    except (OSError, ValueError, KeyError):
        told = {}
    results = []
    for name in names:
        state = told.get(name, {}).get("state", "")
        took = told.get(name, {}).get("duration", seconds)
        if state == "PASSED":
            results.append(Result(name, "PASS", took))
        elif state == "SKIPPED":
            results.append(Result(name, "SKIP", took, skipped(name, text)))
        else:
            results.append(Result(name, "FAIL", took, why or failed(name, text) or f"no result; see {log}"))
    return results


def skipped(name, text):
    row = re.search(rf"^\| {name} +\| +SKIPPED \|[^|]*\|(.*)$", text, re.M)
    if row and row.group(1).strip():
        return row.group(1).strip()
    told = re.search(rf"\[{name[:27]}[^\]]*\] .*(?:Skipping test|SKIPPING TEST)[^:]*:? ?(.*)$", text, re.M)
    return told.group(1).strip(" =") if told else "its runner says no more"


def failed(name, text):
    told = re.search(rf'^### Test "{name}[ "](.*?)###\n(.*)$', text, re.M)
    if not told:
        return ""
    where = re.search(r"\(([\w]+:\d+[^)]*)\)", told.group(1))
    return told.group(2).strip() + (f" [{where.group(1)}]" if where else "")
