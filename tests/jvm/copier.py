#!/usr/bin/env python3
"""Apache Kafka's ProducerPerformance with transactions, and its TransactionalMessageCopier, under kill -9.

    tests/jvm/copier.py --broker COMMAND --jars FOLDER --dir FOLDER [--seconds S] [--rate N] [--seed N]

1. Two ProducerPerformance write numbers in transactions of 200 ms, the broker is killed with SIGKILL every few seconds. One
   writes into a topic of three partitions and must be read there whole. The other is killed as well and starts again from 0
   under its transactional id, into a topic with one partition: there, of each life that was killed, the numbers begin with 0
   and are without a gap, and those of the last are whole. How far a killed life had committed is not known (it does not say
   so), so that an end which is missing there would not be seen; the first topic's would.
2. Three TransactionalMessageCopier, one per partition, copy the first topic in small transactions, every third of which
   they abort on purpose; copiers and the broker are killed in turns. Input and output must be equal, partition by partition.
3. The same as one group: partitions move from one copier to the next.

The last line:

    copier: records=N copied=N copier_kills=N producer_kills=N broker_kills=N lost=0 duplicated=0 out_of_order=0

Exit 1 when anything is wrong, when more programs than one, and one for 20 kills, ended by themselves, or below the least
load, by what was read: 200 records a second that S asks for, copied twice, a kill of a copier and of the broker for every
15 seconds of S, and one of a producer for every 30.
"""

import sys
import time
from pathlib import Path

from lib import (
    Broker,
    Faults,
    Java,
    Numbers,
    all_ended,
    create_topics,
    own_ends_within_bound,
    parser_of,
    read_all,
)

PARTITIONS = 3
SECONDS_BETWEEN_KILLS = (2.0, 5.0)
# In a group a dead member is waited for: the copier's session is 10 seconds.
SECONDS_BETWEEN_KILLS_IN_A_GROUP = (7.0, 10.0)
SECONDS_TO_FINISH = 300
LEAST_RECORDS_PER_SECOND = 200
TRANSACTION_SIZE = 10


class Run:
    def __init__(self, options):
        self.options, self.folder = options, Path(options.dir)
        self.numbers, self.wrong = Numbers(), []
        self.copier_kills = self.producer_kills = self.broker_kills = self.own_ends = 0
        self.found = 0  # records that were read of those that were to be written
        self.records = options.seconds * options.rate
        self.broker = Broker("tidemark", options.broker, {"group.initial.rebalance.delay.ms": 500})

    def java(self, name, main, *arguments):
        program = Java(name, f"{self.options.jars}/*", f"org.apache.kafka.tools.{main}", arguments, self.folder, 192)
        return program.start()

    def producer(self, topic, records, transactional_id):
        return self.java(transactional_id, "ProducerPerformance", "--topic", topic, "--num-records", records,
                         "--throughput", self.options.rate, "--payload-monotonic", "--bootstrap-server",
                         self.broker.address, "--command-property", "reconnect.backoff.ms=20",
                         "--transactional-id", transactional_id, "--transaction-duration-ms", 200)  # fmt: skip

    def copier(self, partition, output, group, *more):
        return self.java(f"{group}-{partition}", "TransactionalMessageCopier", "--broker-list", self.broker.address,
                         "--input-topic", "input", "--input-partition", partition, "--output-topic", output,
                         "--consumer-group", group, "--transaction-size", TRANSACTION_SIZE, "--transactional-id",
                         f"{group}-{partition}", "--enable-random-aborts", *more)  # fmt: skip

    def play(self):
        self.broker.start()
        create_topics(self.broker.address, PARTITIONS, input={}, assigned={}, grouped={})
        create_topics(self.broker.address, 1, lives={})
        try:
            self.produce()
            copied = self.copy("assigned") + self.copy("grouped", "--group-mode", "--use-group-metadata")
        finally:
            self.broker.stop()
            (self.folder / "broker.log").write_text(self.broker.text())
            self.wrong += self.broker.panics()
            self.broker.remove()
        return copied

    # ------------------------------------------------------------------------------- ProducerPerformance

    def produce(self):
        whole = self.producer("input", self.records, "whole")
        lives = self.producer("lives", self.records // 2, "lives")
        faults = Faults([lives], self.broker, self.options.seed, SECONDS_BETWEEN_KILLS)
        faults.start()
        time.sleep(self.options.seconds * 3 / 4)
        faults.spare_programs()  # so that the last life can be whole
        self.finish("the producers", lambda: whole.ended() and lives.ended())
        faults.end()
        for program in (whole, lives):
            if program.process.returncode != 0:
                self.wrong.append(f"{program.name} ended with {program.process.returncode}: {program.tail()}")
            program.stop(5)
        self.producer_kills, self.broker_kills, self.own_ends = lives.kills, faults.broker_kills, lives.own_ends
        found = read_all(self.broker.address, "input", PARTITIONS)
        for partition, messages in enumerate(found):
            values = [int(message.value()) for message in messages]
            if values != sorted(values):
                self.numbers.out_of_order += 1
                self.numbers.example(f"input-{partition} is not in order")
        self.found = sum(len(messages) for messages in found)
        self.numbers.check("input", sorted(int(message.value()) for messages in found for message in messages), self.records)
        self.check_lives([int(message.value()) for message in read_all(self.broker.address, "lives", 1)[0]],
                         lives.kills + lives.own_ends)  # fmt: skip
        print(f"produced {self.found} records, kills {lives.kills} + {faults.broker_kills}", flush=True)

    def check_lives(self, values, ends):
        """Each life that ended early left a beginning without a gap; the last is whole."""
        begins = [place for place, value in enumerate(values) if value == 0] + [len(values)]
        if not values or begins[0] != 0:
            self.numbers.example("lives: the first is not 0")
            self.numbers.lost += 1
            return
        if len(begins) - 1 > ends + 1:
            self.wrong.append(f"lives: {len(begins) - 1} lives, of which {ends} ended early")
        for number, (begin, end) in enumerate(zip(begins, begins[1:])):
            last = number == len(begins) - 2
            self.numbers.check(f"lives, life {number}", values[begin:end], self.records // 2 if last else end - begin)

    # ---------------------------------------------------------------------------------------- the copier

    def copy(self, output, *more):
        copiers = [self.copier(partition, output, f"copy-{output}", *more) for partition in range(PARTITIONS)]
        between = SECONDS_BETWEEN_KILLS_IN_A_GROUP if more else SECONDS_BETWEEN_KILLS
        faults = Faults(copiers, self.broker, self.options.seed, between)
        faults.start()

        def done():
            if self.size(output) >= self.records:
                return True
            # One that has nothing left to copy ends, also when a partition comes to it later.
            if all(program.ended() for program in copiers):
                for program in copiers:
                    program.start()
            return False

        self.finish(f"copying to {output}", done, copiers)
        faults.end()
        for program in copiers:
            program.stop()
        self.copier_kills += sum(program.kills for program in copiers)
        self.own_ends += sum(program.own_ends for program in copiers)
        self.broker_kills += faults.broker_kills
        inputs, outputs = (read_all(self.broker.address, topic, PARTITIONS) for topic in ("input", output))
        for partition, (before, after) in enumerate(zip(inputs, outputs)):
            wanted = [int(message.value()) for message in before]
            place = {value: n for n, value in enumerate(wanted)}
            found = [place.get(int(message.value()), -1) for message in after]
            self.numbers.check(f"{output}-{partition}", found, len(wanted))
        copied = sum(len(messages) for messages in outputs)
        print(f"copied {copied} records to {output}, kills {sum(p.kills for p in copiers)} + {faults.broker_kills}, copiers "
              f"that ended by themselves {sum(p.own_ends for p in copiers)}", flush=True)  # fmt: skip
        return copied

    def size(self, topic):
        try:
            return sum(len(messages) for messages in read_all(self.broker.address, topic, PARTITIONS, 20))
        except RuntimeError:
            return -1  # the broker was just killed

    def finish(self, what, done, programs=()):
        deadline = time.monotonic() + SECONDS_TO_FINISH
        while not done():
            if time.monotonic() > deadline:
                self.wrong.append(f"{what}: not finished after {SECONDS_TO_FINISH} s")
                for program in programs:
                    print(f"{program.name}: {program.tail()}", flush=True)
                return
            time.sleep(2)


def main():
    parser = parser_of(__doc__, 1000, "of writing; copying takes as long as it takes", "records a second of each producer")
    options = parser.parse_args()
    run = Run(options)
    with all_ended():
        copied = run.play()
    seconds = options.seconds
    least = {
        "records": (run.found, seconds * min(LEAST_RECORDS_PER_SECOND, options.rate)),
        "copied": (copied, 2 * seconds * min(LEAST_RECORDS_PER_SECOND, options.rate)),
        "copier_kills": (run.copier_kills, max(1, seconds // 15)),
        "producer_kills": (run.producer_kills, max(1, seconds // 30)),
        "broker_kills": (run.broker_kills, max(1, seconds // 15)),
    }
    run.wrong += [f"too little happened: {name}={found}, at least {wanted} is asked for"
                  for name, (found, wanted) in least.items() if found < wanted]  # fmt: skip
    kills = run.copier_kills + run.producer_kills + run.broker_kills
    run.wrong += own_ends_within_bound("programs", run.own_ends, kills)
    told = run.numbers.tell(run.wrong)
    print(f"copier: records={run.found} copied={copied} copier_kills={run.copier_kills} "
          f"producer_kills={run.producer_kills} broker_kills={run.broker_kills} {told}")  # fmt: skip
    return 1 if run.wrong or run.numbers.examples else 0


if __name__ == "__main__":
    sys.exit(main())
