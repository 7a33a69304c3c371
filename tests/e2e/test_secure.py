"""`serve --secure`: the banner's own lines connect, and nothing else does."""

import json
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from harness import ROOT, Broker, ck, free_port, needs_confluent, needs_kcat, refusal

WORDS = ("kcat", "java", "python")


class Secured:
    """A broker of its own with --secure, for the block."""

    def __init__(self, env, **more):
        env.only_tidemark("its own flag")
        self.binary = env.command.split()[0]
        self.admin_port = free_port()
        settings = {"admin.listen": f"127.0.0.1:{self.admin_port}", **more}
        self.broker = Broker(env.kind, env.command + " --secure", settings)
        self.dir = self.broker.data / "secure"

    def __enter__(self):
        self.broker.start()
        return self

    def __exit__(self, *_):
        self.broker.stop()
        panics = self.broker.panics()
        self.broker.remove()
        assert not panics, f"the broker panicked: {panics[0]}"

    def again(self):
        """Stops it and starts it anew; what it said since."""
        assert self.broker.stop() == 0
        said = len(self.broker.text())
        self.broker.start()
        self.wait_for_banner(said)
        return self.broker.text()[said:]

    def wait_for_banner(self, since=0):
        # ApiVersions is answered before the banner is out.
        for _ in range(600):
            if re.search(r"^  python ", self.broker.text()[since:], re.M):
                return
            subprocess.run(["sleep", "0.05"], check=True)
        raise AssertionError(f"no banner: {self.broker.tail()}")

    def lines(self):
        """The lines that the banner prints for clients."""
        self.wait_for_banner()
        found = re.findall(rf"^  ({'|'.join(WORDS)}) +(.*)$", self.broker.text(), re.M)
        # Each start prints its own.
        newest = found[-len(WORDS) :]
        assert [word for word, _ in newest] == list(WORDS), self.broker.text()
        return dict(newest)

    def password(self):
        user, password = (self.dir / "admin.user").read_text().strip().split(":", 1)
        assert user == "admin" and len(password) == 40
        return password

    def run(self, *arguments):
        command = [self.binary, *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def shell(line):
    """Runs a line as a person would, with the Python of these tests as python3."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_printed_lines_connect(env):
    """kcat and Python, with the lines as the banner has them; Java's file has what they have."""
    needs_kcat()
    needs_confluent()
    with Secured(env) as secured:
        lines = secured.lines()
        assert "hello" in shell(lines["kcat"]).split("\n")
        assert "greetings" in shell(lines["python"]).split()
        java = Path(re.search(r"--command-config (\S+)", lines["java"]).group(1)).read_text()
        for expected in ("security.protocol=SASL_SSL", "ssl.truststore.type=PEM", secured.password(), str(secured.dir / "ca.pem")):
            assert expected in java, java
        # The lines name files; what is secret is in them.
        assert secured.password() not in secured.broker.text()


def closed_without_an_answer(connection, request):
    try:
        connection.sendall(struct.pack(">i", len(request)) + request)
        said = b""
        while more := connection.recv(64):
            said += more
        # TLS may say why it closes: an alert is a record of type 21 with two bytes, and no answer of Kafka's.
        return said == b"" or (said[0] == 21 and len(said) == 7)
    except (ConnectionResetError, BrokenPipeError, ssl.SSLError):
        return True


def listening_ports(pid):
    """Ports on which a process listens, by the kernel's own tables."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry))
        if match:
            inodes.add(match.group(1))
    ports = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


def test_without_credentials_nothing_is_reached_on_any_port(env):
    """Every port that the process listens on: no plain Kafka, no request before a login, no page."""
    needs_confluent()
    with Secured(env) as secured:
        secured.wait_for_banner()
        port = secured.broker.port
        assert listening_ports(secured.broker.process.pid) == {port, secured.admin_port}
        # Metadata v1 for all topics, DescribeCluster, ListGroups, Produce.
        header = lambda key, version: struct.pack(">hhih", key, version, 7, -1)
        requests = [header(3, 1) + struct.pack(">i", -1), header(16, 0), header(22, 0) + struct.pack(">hi", -1, 1000)]
        trusting = ssl.create_default_context(cafile=str(secured.dir / "ca.pem"))
        for request in requests:
            with socket.create_connection(("127.0.0.1", port), 10) as plain:
                assert closed_without_an_answer(plain, request)
            with socket.create_connection(("127.0.0.1", port), 10) as plain:
                with trusting.wrap_socket(plain, server_hostname="localhost") as tls:
                    assert closed_without_an_answer(tls, request)
        # A stranger's CA does not make the broker a friend.
        with socket.create_connection(("127.0.0.1", port), 10) as plain:
            try:
                ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")
                raise AssertionError("a certificate of nobody's CA was taken")
            except ssl.SSLError:
                pass
        for user, password in (("admin", "guess"), ("admin", ""), ("nobody", secured.password())):
            stranger = {
                "bootstrap.servers": secured.broker.address,
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(secured.dir / "ca.pem"),
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": user,
                "sasl.password": password or " ",
                "log_level": 0,
            }
            assert refused_login(stranger), f"{user} got in"
        token = (secured.dir / "admin.token").read_text().strip()
        for path in ("/livez", "/readyz", "/metrics", "/v1/transactions", "/nothing"):
            url = f"http://127.0.0.1:{secured.admin_port}{path}"
            try:
                urllib.request.urlopen(url, timeout=10)
                raise AssertionError(f"{path} was answered")
            except urllib.error.HTTPError as refused:
                assert refused.code == 401, path
        asked = urllib.request.Request(
            f"http://127.0.0.1:{secured.admin_port}/metrics", headers={"Authorization": f"Bearer {token}"}
        )
        metrics = urllib.request.urlopen(asked, timeout=10).read().decode()
        assert "tidemark_audit_log_events" in metrics and token not in metrics
        listed = secured.run(
            "txn", "ls", "--admin", f"127.0.0.1:{secured.admin_port}", "--token-file", str(secured.dir / "admin.token")
        )
        assert listed.returncode == 0, listed.stderr

        # And the audit log has it all, in one piece.
        assert secured.broker.stop() == 0
        verified = secured.run("audit", "verify", "--data-dir", str(secured.broker.data), "--json")
        assert verified.returncode == 0, verified.stdout
        told = [json.loads(line) for line in (secured.broker.data / "audit" / "audit-00000001.jsonl").read_text().splitlines()]
        failed = {(line.get("claimed"), line["outcome"]) for line in told if line["event"] == "authentication"}
        assert ("admin", "failed") in failed and ("nobody", "failed") in failed, told
        assert any(line["event"] == "tls-refused" for line in told)
        for secret in (secured.password(), token):
            assert secret not in json.dumps(told) and secret not in secured.broker.text()


def test_a_second_start_finds_everything_and_a_new_name_gets_a_new_certificate(env):
    needs_kcat()
    with Secured(env) as secured:
        secured.wait_for_banner()
        names = ("ca.pem", "ca.key", "server.pem", "admin.user", "admin.token")
        before = {name: (secured.dir / name).read_bytes() for name in names}
        said = secured.again()
        assert "was made" not in said, said
        assert before == {name: (secured.dir / name).read_bytes() for name in names}
        assert oct(secured.dir.stat().st_mode & 0o777) == "0o700"
        for path in secured.dir.iterdir():
            assert oct(path.stat().st_mode & 0o777) == "0o600", path
        shell(secured.lines()["kcat"])

        port = secured.broker.port
        secured.broker.environment["TIDEMARK_ADVERTISED_LISTENERS"] = f"SASL_SSL://broker.example.com:{port}"
        said = secured.again()
        assert "was made anew" in said and "it is not for broker.example.com" in said, said
        now = {name: (secured.dir / name).read_bytes() for name in names}
        assert {name for name in names if now[name] != before[name]} == {"server.pem"}
        trusting = ssl.create_default_context(cafile=str(secured.dir / "ca.pem"))
        with socket.create_connection(("127.0.0.1", port), 10) as plain:
            trusting.wrap_socket(plain, server_hostname="broker.example.com").close()


def plant_admin(address):
    """What anybody can do while there is no authorizer."""
    from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    change = UserScramCredentialUpsertion("admin", info, b"a stranger's")
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.alter_user_scram_credentials([change], request_timeout=30).values():
        future.result(30)


def refused_login(options):
    return any(error.code() == ck.KafkaError._AUTHENTICATION for error in refusal(options) or [])


def test_an_open_directory_is_closed_and_not_opened_again_by_mistake(env):
    """Topics stay, everyone but the admin is shut out, also who made a user of that name before; and a
    start without the flag is refused."""
    needs_kcat()
    needs_confluent()
    with Secured(env) as secured:
        secured.broker.stop()
        open_command = [word for word in secured.broker.command if word != "--secure"]
        # A new broker, open, whose data is then secured.
        other = Secured(env)
        other.broker.command = [word for word in other.broker.command if word != "--secure"]
        try:
            other.broker.start()
            shell(f"echo kept | kcat -b {other.broker.address} -P -t kept")
            plant_admin(other.broker.address)
            other.broker.stop()
            other.broker.command.append("--secure")
            other.broker.start()
            lines = other.lines()
            assert "was served without --secure before" in other.broker.text(), other.broker.text()
            assert "the user admin was there already" in other.broker.text(), other.broker.text()
            stranger = {
                "bootstrap.servers": other.broker.address,
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(other.dir / "ca.pem"),
                "sasl.username": "admin",
                "sasl.password": "a stranger's",
            }
            for mechanism in ("PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256"):
                assert refused_login({**stranger, "sasl.mechanism": mechanism}), mechanism
            file = re.search(r"-F (\S+)", lines["kcat"]).group(1)
            assert shell(f"kcat -F {file} -C -t kept -e -q").strip() == "kept"
            outside = subprocess.run(
                ["kcat", "-b", other.broker.address, "-L", "-m", "3"], capture_output=True, text=True, timeout=60
            )
            assert outside.returncode != 0, outside.stdout
        finally:
            other.broker.stop()
            other.broker.remove()
        refused = subprocess.run(
            open_command, cwd=ROOT, env=secured.broker.environment, capture_output=True, text=True, timeout=60
        )
        assert refused.returncode == 1 and "--secure" in refused.stderr, refused.stderr
        # Nor with logins but no authorizer, which would let each of them do everything.
        logins = [word for word in open_command]
        at = logins.index("--listen")
        logins[at : at + 2] = ["--listeners", f"SASL_SSL://127.0.0.1:{secured.broker.port}"]
        logins += ["--ssl-keystore-location", str(secured.dir / "server.pem")]
        refused = subprocess.run(
            logins, cwd=ROOT, env=secured.broker.environment, capture_output=True, text=True, timeout=60
        )
        assert refused.returncode == 1 and "authorizer.class.name" in refused.stderr, refused.stderr


def test_what_would_open_it_is_refused_with_the_way_out(env):
    with Secured(env) as secured:
        data = str(secured.broker.folder / "other")
        for flags, told in (
            (["--listeners", "PLAINTEXT://127.0.0.1:0"], "SASL_SSL"),
            (["--listeners", "SASL_SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:1"], "PLAINTEXT"),
            (["--authorizer-class-name", ""], "authorizer.class.name"),
            (["--allow-everyone-if-no-acl-found", "true"], "allow.everyone.if.no.acl.found"),
            (["--super-users", "User:other"], "User:admin"),
            (["--ssl-keystore-location", "mine.pem"], "ssl.keystore.location"),
            (["--admin-listen", "0.0.0.0:0"], "admin.listen"),
        ):
            listen = [] if "--listeners" in flags else ["--listen", "127.0.0.1:0"]
            refused = secured.run("serve", "--secure", "--data-dir", data, *listen, *flags)
            assert refused.returncode == 1, flags
            assert told in refused.stderr and "mend:" in refused.stderr, (flags, refused.stderr)
            assert not Path(data).exists(), flags
