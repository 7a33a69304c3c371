"""What kafka-python's fixtures import and its source distribution lacks: brokers as services.

A broker that runs already is all that there is here. A fixture that wants to start one of its own, with TLS or SASL,
is a skip.
"""

import pytest


class ExternalService:
    """A broker that somebody else started."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def start(self):
        pass

    def stop(self):
        pass

    def dump_logs(self):
        pass


class SpawnedService:
    """A broker to be started."""

    def __init__(self, *_arguments, **_options):
        pytest.skip("starts a Kafka of its own, with listeners for TLS or SASL, which Tidemark does not have")
