"""What the suites share."""

import os
import subprocess
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
    import json

    done = subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version", "1"], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise SuiteError(f"cargo metadata: {done.stderr.strip()[-400:]}")
    for package in json.loads(done.stdout)["packages"]:
        if package["name"] == name:
            return Path(package["manifest_path"]).parent, package["version"]
    raise SuiteError(f"Cargo.lock has no crate {name}")
