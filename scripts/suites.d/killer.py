"""kill -9 of the broker, again and again, while a suite runs."""

import random
import threading


class Killer(threading.Thread):
    """Kills the broker with SIGKILL, now and then, and starts it again: same port, same data directory."""

    def __init__(self, broker, seed):
        super().__init__(daemon=True)
        self.broker, self.random = broker, random.Random(seed)
        self.over = threading.Event()
        self.kills, self.error = 0, None

    def run(self):
        try:
            while not self.over.wait(self.random.uniform(1.5, 4.0)):
                self.broker.restart_after_kill()
                self.kills += 1
        except Exception as error:  # the run is told of it when it ends
            self.error = error

    def end(self):
        self.over.set()
        self.join()
