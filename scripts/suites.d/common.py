"""What the suites share."""

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class SuiteError(Exception):
    """The suite cannot run here; the text says what is missing and how to mend it."""


@dataclass
class Result:
    name: str
    outcome: str  # PASS, FAIL or SKIP
    seconds: float
    why: str = ""


def cache():
    """The folder for suites, beside what the other scripts fetch."""
    base = os.environ.get("TIDEMARK_TEST_CACHE_DIR")
    if not base:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidemark"
    path = Path(base) / "suites"
    path.mkdir(parents=True, exist_ok=True)
    return path


def portable(text):
    """A text without the paths of this machine: what lies in the cache is told from there on."""
    return text.replace(f"{cache()}/", "").replace(f"{cache().parent}/", "").replace(f"{ROOT}/", "")


def target_dir():
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")


def must(command, log, what, cwd=None, seconds=1800, env=None):
    """Runs a command of the preparation; its output goes to a log."""
    try:
        with open(log, "ab") as out:
            done = subprocess.run(
                command, cwd=cwd, stdout=out, stderr=out, stdin=subprocess.DEVNULL, timeout=seconds,
                env={**os.environ, **(env or {})},
            )  # fmt: skip
    except FileNotFoundError as error:
        raise SuiteError(f"{what}: {error.filename} is missing; see --help") from None
    except subprocess.TimeoutExpired:
        raise SuiteError(f"{what}: not done after {seconds} s; its output is in {log}") from None
    if done.returncode:
        tail = "\n".join(Path(log).read_text(errors="replace").splitlines()[-15:])
        said = " ".join(map(str, command))
        raise SuiteError(f"{what}: {said} ended with {done.returncode}; the end of {log}:\n{tail}")


def crate_source(name):
    """Where cargo keeps the source of a crate that Cargo.lock pins, and its version."""
    done = subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version", "1"], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise SuiteError(f"cargo metadata: {done.stderr.strip()[-400:]}")
    for package in json.loads(done.stdout)["packages"]:
        if package["name"] == name:
            return Path(package["manifest_path"]).parent, package["version"]
    raise SuiteError(f"Cargo.lock has no crate {name}")


def build_go_tests(what, package, program, *options):
    """Compiles a Go package's tests into one program."""
    must(["go", "test", "-c", *options, "-o", str(program), "."], program.with_suffix(".build.log"), what, cwd=package,
         env={"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"})  # fmt: skip


def run_go_tests(stage, program, package, environment, seconds):
    """Runs the tests that are asked for; what does not end within so many seconds has failed."""
    log = stage.folder / f"run{stage.number}.log"
    command = ["go", "tool", "test2json", "-t", str(program), "-test.v=test2json", f"-test.timeout={seconds}s"]
    if stage.options.only:
        command.append(f"-test.run={'|'.join(stage.options.only)}")
    started = time.monotonic()
    try:
        with open(log, "wb") as out:
            subprocess.run(command, cwd=package, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=out,
                           stderr=out, timeout=seconds + 60)  # fmt: skip
    except subprocess.TimeoutExpired:
        pass  # what did not end has no result, and is told so
    return read_go_tests(log, time.monotonic() - started)


def read_go_tests(log, seconds):
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
            why = "" if action == "pass" else go_reason(said.get(name, []))
            tests[name] = Result(name, action.upper(), event.get("Elapsed", 0), why)
    for name, result in tests.items():
        parts = [part for part in tests.values() if part.name.startswith(f"{name}/")]
        if "/" not in name and parts and result.outcome == "PASS" and all(part.outcome == "SKIP" for part in parts):
            result.outcome, result.why = "SKIP", "all its parts are skipped"
    return list(tests.values())


def go_reason(lines):
    return " ".join(line for line in lines if line and not line.startswith(("=== ", "--- ")))[:300]
