"""Kafka's own kafka-configs.sh: users with passwords, and quotas, of which there are none."""

import functools
import os
import shutil
import signal
import subprocess
import threading

from harness import ROOT, Skip, needs_confluent
from test_sasl import Asking

SECONDS_TO_FETCH = 240
SECONDS_PER_COMMAND = 60
FETCHING = threading.Lock()  # tests run at the same time


def jars():
    """The classpath of Kafka's tools."""
    with FETCHING:
        folder, why = fetched()
    if why:
        raise Skip(why)
    return f"{folder}/libs/*"


@functools.cache
def fetched():
    """Their folder, or why they cannot be had: found out once."""
    if shutil.which("java") is None:
        return None, "java is not installed"
    # A group of its own: what it starts (Maven) ends with it.
    process = subprocess.Popen(
        ["scripts/peers/kafka", "tools"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        out, said = process.communicate(timeout=SECONDS_TO_FETCH)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, f"Kafka's tools were not fetched within {SECONDS_TO_FETCH} s"
    if process.returncode:
        return None, f"Kafka's tools cannot be had here: {said.strip()[-200:]}"
    return out.split()[-1], None


class Tool:
    def __init__(self, address, *options):
        self.classpath, self.address, self.options = jars(), address, options

    def __call__(self, *words, fails=False):
        """The lines that it prints; what it says in all when it is to fail."""
        done = subprocess.run(
            ["java", "-Xmx128M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
             "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", self.classpath,
             "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", self.address, *self.options, *words],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=SECONDS_PER_COMMAND,
        )  # fmt: skip
        said = done.stdout + done.stderr
        # It ends with 0 also when the broker refuses what it is told; then it says so.
        if fails:
            assert "Exception" in said, f"{words}: {said}"
            return said
        assert done.returncode == 0 and "Exception" not in said and "Error" not in said, f"{words}: {said}"
        return [line for line in done.stdout.splitlines() if line]


def described(mechanisms, user="alice"):
    return f"SCRAM credential configs for user-principal '{user}' are {mechanisms}"


def test_users_are_set_shown_and_taken_away_by_kafka_configs(env):
    with env.private():
        tool = Tool(env.address)
        users = ["--entity-type", "users"]
        alice, bob = [*users, "--entity-name", "alice"], [*users, "--entity-name", "bob"]
        assert tool("--describe", *users) == [], "nobody yet"

        for whom, what in [
            (alice, "SCRAM-SHA-256=[iterations=8192,password=secret-1]"),
            (alice, "SCRAM-SHA-512=[password=secret-2]"),
            (bob, "SCRAM-SHA-512=[iterations=5000,password=secret-3]"),
        ]:
            assert tool("--alter", "--add-config", what, *whom) == [f"Completed updating config for user {whom[-1]}."]
        of_alice = described("SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096")
        of_bob = described("SCRAM-SHA-512=iterations=5000", "bob")
        assert sorted(tool("--describe", *users)) == [of_alice, of_bob]
        assert tool("--describe", *alice) == [of_alice]

        tool("--alter", "--delete-config", "SCRAM-SHA-256", *alice)
        assert tool("--describe", *alice) == [described("SCRAM-SHA-512=iterations=4096")]
        tool("--alter", "--delete-config", "SCRAM-SHA-512", *alice)
        assert tool("--describe", *users) == [of_bob]
        # A second time: nobody is there any more.
        assert "ResourceNotFoundException" in tool("--alter", "--delete-config", "SCRAM-SHA-512", *alice, fails=True)


def test_quotas_are_shown_to_be_none_and_refused_with_what_to_set_instead(env):
    env.only_tidemark("Kafka has quotas")
    with env.private():
        tool = Tool(env.address)
        for kind in ["users", "clients", "ips"]:
            assert tool("--describe", "--entity-type", kind) == []
        bob = ["--entity-type", "users", "--entity-name", "bob"]
        said = tool("--alter", "--add-config", "producer_byte_rate=1024", *bob, fails=True)
        assert "PolicyViolationException" in said and "max.inflight.bytes.per.connection" in said, said
        address = ["--entity-type", "ips", "--entity-name", "127.0.0.9"]
        said = tool("--alter", "--add-config", "connection_creation_rate=5", *address, fails=True)
        assert "max.connection.creation.rate.per.ip" in said, said
        assert tool("--describe", *bob) == [], "nothing was stored"


def test_a_user_made_by_kafka_configs_logs_in_until_it_is_taken_away(env):
    """Over TLS, by the administrator's password."""
    needs_confluent()
    with Asking(env, "SASL_SSL") as asking:
        properties = asking.broker.folder / "admin.properties"
        properties.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="alice" password="{asking.options("PLAIN")["sasl_password"]}";\n'
            f"ssl.truststore.type=PEM\nssl.truststore.location={asking.authority.certificate}\n"
        )
        tool = Tool(env.address, "--command-config", str(properties))
        carol = ["--entity-type", "users", "--entity-name", "carol"]
        login = asking.options("SCRAM-SHA-512", "carol", "of-carol")
        assert asking.is_refused(login)
        tool("--alter", "--add-config", "SCRAM-SHA-512=[password=of-carol]", *carol)
        assert not asking.is_refused(login)
        assert described("SCRAM-SHA-512=iterations=4096", "carol") in tool("--describe", "--entity-type", "users")
        tool("--alter", "--delete-config", "SCRAM-SHA-512", *carol)
        assert asking.is_refused(login)
