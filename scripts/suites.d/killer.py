"""kill -9 of the broker, again and again, while a suite runs."""

import random
import socket
import threading
import time


class Killer(threading.Thread):
    """Kills the broker with SIGKILL, now and then, and starts it again: same port, same data directory.

    Members of a group hear of a rebalance from their heartbeats, every three seconds, and their JoinGroup may take
    twenty in all: with less time between kills no rebalance would ever be over.
    """

    SECONDS_BETWEEN = (3.0, 8.0)

    def __init__(self, broker, seed):
        super().__init__(daemon=True)
        self.broker, self.random = broker, random.Random(seed)
        self.over = threading.Event()
        self.kills, self.error = 0, None

    def run(self):
        try:
            while not self.over.wait(self.random.uniform(*self.SECONDS_BETWEEN)):
                self.broker.restart_after_kill()
                self.kills += 1
        except Exception as error:  # the run is told of it when it ends
            self.error = error

    def end(self):
        self.over.set()
        self.join()


class Relay:
    """Where clients connect instead of the broker's own port: it is there while the broker is not.

    Connections that are open when the broker is killed break, as they would without it. A new one waits for the broker
    to be back, as behind a load balancer, instead of being refused: there are clients that give up at once when the
    only address they know refuses, which says nothing about the broker.
    """

    SECONDS_TO_BE_BACK = 30

    def __init__(self, port):
        self.broker_port = None
        self.listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.address = f"127.0.0.1:{port}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        deadline = time.monotonic() + self.SECONDS_TO_BE_BACK
        while True:
            try:
                broker = socket.create_connection(("127.0.0.1", self.broker_port), 5)
                break
            except OSError:
                if time.monotonic() > deadline:
                    client.close()
                    return
                time.sleep(0.02)
        broker.settimeout(None)
        for end in (client, broker):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=pump, args=(broker, client), daemon=True).start()
        pump(client, broker)

    def close(self):
        self.listener.close()


def pump(source, sink):
    """Passes on what comes; when one side is gone, so is the other."""
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
    source.close()
