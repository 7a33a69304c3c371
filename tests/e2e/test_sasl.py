"""Listeners with SASL: stock clients with passwords, over TLS and without."""

import re
import subprocess
import time

from authority import Authority
from harness import Broker, OwnBroker, Skip, ck, deliver, eventually, free_port, needs_confluent, needs_kcat
from test_tls import read_more

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PASSWORD = "al,ice=s secret"


class Asking(OwnBroker):
    """A broker with one listener that asks who is there, for the block."""

    secrets = (PASSWORD,)

    def __init__(self, env, protocol, **settings):
        env.only_tidemark("its own settings")
        self.env, self.protocol = env, protocol
        self.admin = f"127.0.0.1:{free_port()}"
        listener = f"--listeners {protocol}://127.0.0.1:{{port}}"
        command = env.command.replace("--listen 127.0.0.1:{port}", listener)
        assert command != env.command, f"the listener of {command} is not known here"
        settings = {
            "admin.listen": self.admin,
            "group.initial.rebalance.delay.ms": 0,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            **settings,
        }
        if protocol == "SASL_PLAINTEXT":
            settings["auth.plain.without.tls"] = "true"
        self.broker = Broker(env.kind, command, settings)
        folder = self.broker.folder
        users = folder / "users"
        users.write_text(f"# the first users\nalice:{PASSWORD}\n")
        self.broker.environment["TIDEMARK_AUTH_USERS_FILE"] = str(users)
        self.authority = None
        if protocol == "SASL_SSL":
            try:
                self.authority = Authority(folder)
            except Skip:
                self.broker.remove()
                raise
            self.authority.sign("server", "/CN=broker")
            self.broker.environment["TIDEMARK_SSL_KEYSTORE_LOCATION"] = str(folder / "server-both.pem")

    def options(self, mechanism, user="alice", password=PASSWORD):
        options = {
            "security_protocol": self.protocol.lower(),
            "sasl_mechanism": mechanism,
            "sasl_username": user,
            "sasl_password": password,
        }
        if self.authority:
            options["ssl_ca_location"] = str(self.authority.certificate)
        return options

    def is_refused(self, options):
        """Whether it is for its password; it is let in otherwise."""
        heard = self.refusal(options)
        assert heard is None or ck.KafkaError._AUTHENTICATION in {error.code() for error in heard}, heard
        return heard is not None


def works(env, options):
    """The main job: transactions, offsets in one of them, and a group that reads what was committed."""
    topic, out = env.fresh(), env.fresh()
    producer = env.transactional(**options)
    producer.begin_transaction()
    deliver(producer, topic, ["one", "two"])
    producer.commit_transaction(30)
    producer.begin_transaction()
    deliver(producer, topic, ["three"])
    producer.abort_transaction(30)

    group = env.fresh("g")
    consumer = env.consumer(group_id=group, **options)
    consumer.subscribe([topic])
    read = []
    eventually(lambda: read_more(consumer, read, 2), seconds=30)
    assert read == ["one", "two"], read
    producer.begin_transaction()
    deliver(producer, out, [value.upper() for value in read])
    positions = [ck.TopicPartition(topic, 0, 2)]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    assert consumer.committed(positions, 10)[0].offset == 2


def test_transactions_over_tls_by_every_mechanism(env):
    needs_confluent()
    with Asking(env, "SASL_SSL") as asking:
        for mechanism in MECHANISMS:
            works(env, asking.options(mechanism))


def test_transactions_without_tls_by_every_mechanism(env):
    needs_confluent()
    with Asking(env, "SASL_PLAINTEXT") as asking:
        for mechanism in MECHANISMS:
            works(env, asking.options(mechanism))


def kcats_librdkafka():
    """The version of librdkafka that kcat is built with."""
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout
    return tuple(int(n) for n in re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", said).groups())


def test_kcat_authenticates(env):
    """By PLAIN; by SCRAM where its librdkafka is 2.6.1 or newer. An older one sends back another nonce than the
    broker's, which Kafka refuses since 3.8 (CVE-2024-56128), and so do we, saying so in the log."""
    needs_kcat()
    sends_the_nonce = kcats_librdkafka() >= (2, 6, 1)
    for protocol in ["SASL_SSL", "SASL_PLAINTEXT"]:
        with Asking(env, protocol) as asking:
            for mechanism in MECHANISMS:
                options = asking.options(mechanism)
                words = [w for k, v in options.items() for w in ("-X", f"{k.replace('_', '.')}={v}")]
                topic = f"greetings-{mechanism}"
                if mechanism != "PLAIN" and not sends_the_nonce:
                    said = env.kcat("-L", *words, check=False)
                    assert "greetings" not in said, said
                    continue
                env.kcat("-P", "-t", topic, *words, stdin="hello\n")
                assert env.kcat("-C", "-t", topic, "-e", "-q", *words) == "hello\n"


def test_strangers_are_refused_and_told_in_the_log(env):
    needs_confluent()
    # Without TLS, as the harness's look at the port would be the one stranger of this minute that the log tells of.
    with Asking(env, "SASL_PLAINTEXT") as asking:
        assert asking.refusal(asking.options("SCRAM-SHA-256")) is None
        for mechanism in MECHANISMS:
            for user, password in [("alice", "wrong"), ("nobody", PASSWORD)]:
                assert asking.is_refused(asking.options(mechanism, user, password)), (mechanism, user)
        assert asking.refusal({}) is not None, "no SASL at all"
        assert "not authenticated at SASL_PLAINTEXT" in asking.broker.text(), asking.broker.text()


def test_sessions_are_renewed_under_a_transactional_load(env):
    """Case A27 with a stock client: its session ends every ten seconds, and it does not notice."""
    needs_confluent()
    with Asking(env, "SASL_PLAINTEXT", **{"connections.max.reauth.ms": 10000}) as asking:
        options = asking.options("SCRAM-SHA-512")
        heard = []
        topic = env.fresh()
        producer = env.transactional(error_cb=heard.append, **options)
        wanted = []
        until = time.monotonic() + 28
        while time.monotonic() < until:
            producer.begin_transaction()
            wanted.append(f"value {len(wanted)}")
            deliver(producer, topic, wanted[-1:])
            producer.commit_transaction(30)
            producer.poll(0.25)
        consumer = env.consumer(**options)
        consumer.subscribe([topic])
        read = []
        eventually(lambda: read_more(consumer, read, len(wanted)), seconds=60)
        assert read == wanted
        assert not heard, heard


def test_users_are_managed_by_the_stock_admin_client(env):
    needs_confluent()
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )

    with Asking(env, "SASL_PLAINTEXT") as asking:
        admin = AdminClient(env.config(**asking.options("SCRAM-SHA-256")))

        def alter(change):
            for future in admin.alter_user_scram_credentials([change], request_timeout=30).values():
                future.result(30)

        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
        alter(UserScramCredentialUpsertion("bob", info, b"bob-secret"))
        bob = asking.options("SCRAM-SHA-512", "bob", "bob-secret")
        assert asking.refusal(bob) is None
        assert asking.refusal(asking.options("PLAIN", "bob", "bob-secret")) is None
        described = admin.describe_user_scram_credentials(["bob"], request_timeout=30)["bob"].result(30)
        infos = [(i.mechanism, i.iterations) for i in described.scram_credential_infos]
        assert infos == [(ScramMechanism.SCRAM_SHA_512, 8192)], infos

        asking.broker.restart_after_kill()
        assert asking.refusal(bob) is None, "users outlive a kill"
        alter(UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512))
        assert asking.is_refused(bob)


def test_the_user_is_told_as_the_one_who_holds_a_transaction(env):
    needs_confluent()
    with Asking(env, "SASL_SSL") as asking:
        producer = env.transactional("sasl-tx", **asking.options("PLAIN"))
        producer.begin_transaction()
        deliver(producer, "ledger", ["one"])
        command = [env.command.split()[0], "txn", "ls", "--json", "--admin", asking.admin]
        shown = subprocess.run(command, check=True, capture_output=True, text=True)
        assert "User:alice" in shown.stdout, shown.stdout
        producer.abort_transaction(30)
