"""Listeners with TLS: stock clients with certificates, and without."""

import json
import signal
import subprocess

from authority import Authority
from harness import Broker, OwnBroker, Skip, deliver, eventually, free_port, needs_confluent, needs_kcat


class Secured(OwnBroker):
    """A broker with one TLS listener that asks for certificates, for the block."""

    def __init__(self, env):
        env.only_tidemark("its own settings")
        self.env = env
        self.admin = f"127.0.0.1:{free_port()}"
        command = env.command.replace("--listen 127.0.0.1:{port}", "--listeners SSL://127.0.0.1:{port}")
        assert command != env.command, f"the listener of {command} is not known here"
        self.broker = Broker(env.kind, command, {"admin.listen": self.admin})
        folder = self.broker.folder
        try:
            self.authority = Authority(folder)
        except Skip:
            self.broker.remove()
            raise
        self.authority.sign("server", "/CN=broker")
        self.broker.environment.update(
            TIDEMARK_SSL_KEYSTORE_LOCATION=str(folder / "server-both.pem"),
            TIDEMARK_SSL_TRUSTSTORE_LOCATION=str(self.authority.certificate),
            TIDEMARK_SSL_CLIENT_AUTH="required",
            TIDEMARK_SSL_PRINCIPAL_MAPPING_RULES="RULE:CN=([^,]+),.*/$1/L,DEFAULT",
        )

    def options(self, shown, authority=None):
        certificate, key = shown
        return {
            "security_protocol": "ssl",
            "ssl_ca_location": str((authority or self.authority).certificate),
            "ssl_certificate_location": str(certificate),
            "ssl_key_location": str(key),
        }

    def connects(self, options):
        return self.refusal(options) is None


def test_transactions_with_client_certificates(env):
    """The main job over TLS, and the certificate's owner is told as the one who holds the transaction."""
    needs_confluent()
    with Secured(env) as secured:
        till = secured.options(secured.authority.sign("till", "/O=Shop/CN=Till-7"))
        producer = env.transactional("tls-tx", **till)
        producer.begin_transaction()
        deliver(producer, "ledger", ["one", "two"])
        producer.commit_transaction(30)
        producer.begin_transaction()
        deliver(producer, "ledger", ["three"])

        binary = env.command.split()[0]
        shown = subprocess.run(
            [binary, "txn", "ls", "--json", "--admin", secured.admin], check=True, capture_output=True, text=True
        )
        assert "User:till-7" in shown.stdout, shown.stdout
        json.loads(shown.stdout)
        producer.abort_transaction(30)

        consumer = env.consumer(**till)
        consumer.subscribe(["ledger"])
        read = []
        eventually(lambda: read_more(consumer, read, 2), seconds=30)
        assert read == ["one", "two"], read


def read_more(consumer, read, count):
    message = consumer.poll(1)
    if message is not None and not message.error():
        read.append(message.value().decode())
    assert len(read) >= count, read


def test_kcat_with_a_client_certificate(env):
    needs_kcat()
    with Secured(env) as secured:
        certificate, key = secured.authority.sign("kcat", "/CN=kcat")
        tls = [
            "-X", "security.protocol=ssl", "-X", f"ssl.ca.location={secured.authority.certificate}",
            "-X", f"ssl.certificate.location={certificate}", "-X", f"ssl.key.location={key}",
        ]  # fmt: skip
        env.kcat("-P", "-t", "greetings", *tls, stdin="hello\n")
        assert env.kcat("-C", "-t", "greetings", "-e", "-q", *tls) == "hello\n"


def test_strangers_are_refused_and_told_in_the_log(env):
    needs_confluent()
    with Secured(env) as secured:
        good = secured.authority.sign("good", "/CN=good")
        other = Authority(secured.broker.folder, "other")
        foreign = other.sign("foreign", "/CN=good")
        assert secured.connects(secured.options(good))
        assert not secured.connects(secured.options(foreign)), "a certificate of another CA"
        assert not secured.connects({}), "no TLS at all"
        without = {k: v for k, v in secured.options(good).items() if "certificate" not in k and "key" not in k}
        assert not secured.connects(without), "no certificate"
        assert "TLS handshake" in secured.broker.text(), secured.broker.text()


def test_files_are_read_again_at_sighup_and_bad_ones_are_not_used(env):
    needs_confluent()
    with Secured(env) as secured:
        shown = secured.authority.sign("client", "/CN=client")
        keystore = secured.broker.folder / "server-both.pem"
        good = keystore.read_text()
        keystore.write_text("half a file")
        secured.broker.process.send_signal(signal.SIGHUP)
        eventually(lambda: told(secured, "stay in use"))
        assert secured.connects(secured.options(shown)), "the old files are in use"

        # Another authority signs the broker's next certificate: only who knows that one trusts it.
        other = Authority(secured.broker.folder, "next")
        other.sign("server", "/CN=broker")
        secured.broker.process.send_signal(signal.SIGHUP)
        eventually(lambda: told(secured, "TLS files read again"))
        assert secured.connects(secured.options(shown, other))
        assert not secured.connects(secured.options(shown))
        assert keystore.read_text() != good


def told(secured, words):
    assert words in secured.broker.text(), secured.broker.text()
