"""Rows about tokens that end while a client works: one that is renewed and one that is not."""

import contextlib
import os
import re
import threading
import time
from collections import Counter
from pathlib import Path

from scenario import ClientError, same
from wire import batches

# A session lasts 3 s at most (tests/clients/secure); a client may fetch a token when a fifth of the last one is left, look
# at that once a second, and must not authenticate again within a second (KIP-368). So tokens cannot be shorter.
TOKEN_SECONDS = 15
NOT_RENEWED_SECONDS = 25  # a JVM on a busy machine is slow to begin
TOKENS, RENEWALS = 2, 5
SECONDS = 120


class Token:
    """A file with the token of a user of its own."""

    def __init__(self, path, issuer, user):
        self.path, self.issuer, self.user = Path(path), issuer, user

    def write(self, seconds):
        """As a whole: the client reads when it likes."""
        new = self.path.with_suffix(".new")
        new.write_text(self.issuer.token(self.user, seconds))
        os.replace(new, self.path)

    @contextlib.contextmanager
    def kept_fresh(self):
        """For the block there is always one that is good for almost TOKEN_SECONDS."""
        over = threading.Event()

        def keep():
            while not over.wait(1):
                self.write(TOKEN_SECONDS)

        self.write(TOKEN_SECONDS)
        thread = threading.Thread(target=keep, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class Renewals:
    """How often a user's connections have authenticated since now, from the broker's log (at debug)."""

    def __init__(self, log, user):
        self.log, self.at, self.rest = log, log.stat().st_size, b""
        self.line = re.compile(rf"(127\.0\.0\.1:\d+) at SASL_SSL: User:{user} by OAUTHBEARER".encode())
        self.authenticated = Counter()

    def most(self):
        """Of the connection that renewed its session most often."""
        with open(self.log, "rb") as file:
            file.seek(self.at)
            data = file.read()
        self.at += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            if found := self.line.search(line):
                self.authenticated[found[1]] += 1
        return max(self.authenticated.values(), default=1) - 1


def renewed(stage, token, log):
    """One transaction for longer than TOKENS tokens are good one after the other; and, where the broker's log tells who
    authenticates (Kafka's does not), until a connection has renewed its session RENEWALS times."""
    topic, renewals = stage.topic(), Renewals(log, token.user) if log else None
    with token.kept_fresh():
        c = stage.client()
        c.do("producer", "p", "transactional", stage.fresh("tx"))
        c.do("begin", "p")
        values, began = [], time.monotonic()
        while (lasted := time.monotonic() - began) < TOKENS * TOKEN_SECONDS or renewals and renewals.most() < RENEWALS:
            if lasted > SECONDS:
                connections = len(renewals.authenticated)
                raise AssertionError(f"within {SECONDS} s only {renewals.most()} renewals of one of {connections} connections")
            values.append(f"value {len(values)}")
            c.do("send", "p", topic, 0, values[-1])
            time.sleep(0.1)
        c.do("commit", "p")
        same(stage.committed(c, topic, values[-1]), values, "committed view")
    same(sum(b["control"] for b in batches(stage.direct, topic)), 1, "markers")
    return f"one transaction over {TOKENS} tokens and more" + (f", {RENEWALS} renewals and more" if renewals else "")


def not_renewed(stage, token):
    """Cut off when its token is over, and what it wrote is not committed. With a new one it may go on where it was."""
    topic, name = stage.topic(), stage.fresh("tx")
    c = stage.client()
    c.do("hello")
    token.write(NOT_RENEWED_SECONDS)
    c.do("producer", "p", "transactional", name)
    c.do("begin", "p")
    sent, began = 0, time.monotonic()
    while True:
        try:
            c.do("send", "p", topic, 0, f"before {sent}")
        except ClientError as error:
            said = str(error)
            break
        sent += 1
        if time.monotonic() - began > SECONDS:
            raise AssertionError(f"not cut off within {SECONDS} s, after {sent} records")
        time.sleep(0.1)
    c.kill()
    assert sent, f"cut off before it did anything: {said}"
    assert "was not answered within" not in said, f"the client does not say that it was cut off: {said}"
    token.write(3600)
    again = stage.client()
    again.do("producer", "p", "transactional", name)
    again.do("begin", "p")
    again.do("send", "p", topic, 0, "after")
    again.do("commit", "p")
    same(stage.committed(again, topic, "after"), ["after"], "committed view")
    return f"some records, then: {said.split(': ', 2)[-1]}"
