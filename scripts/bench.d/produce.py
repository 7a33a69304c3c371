"""Records of one size through confluent-kafka, for rows whose client needs TLS: records a second, as JSON."""

import argparse
import json
import time

from confluent_kafka import Producer

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--brokers", required=True)
arguments.add_argument("--topic", required=True)
arguments.add_argument("--count", type=int, default=200_000)
arguments.add_argument("--record-bytes", type=int, default=1024)
arguments.add_argument("--ca", help="the authority of the broker's certificate: speak TLS")
args = arguments.parse_args()

options = {
    "bootstrap.servers": args.brokers,
    "acks": "all",
    "linger.ms": 5,
    "queue.buffering.max.messages": 500_000,
}
if args.ca:
    options |= {"security.protocol": "ssl", "ssl.ca.location": args.ca}
failed = 0


def delivered(error, _):
    global failed
    failed += error is not None


producer = Producer(options)
# Connected, and the topic made: none of it is in the time.
producer.produce(args.topic, b"first", on_delivery=delivered)
if producer.flush(30):
    raise SystemExit("the broker takes no record")
value = bytes(i * 37 % 251 for i in range(args.record_bytes))
started = time.monotonic()
for _ in range(args.count):
    while True:
        try:
            producer.produce(args.topic, value, on_delivery=delivered)
            break
        except BufferError:
            producer.poll(0.01)
    producer.poll(0)
left = producer.flush(120)
seconds = time.monotonic() - started
if left or failed:
    raise SystemExit(f"{left} records are not delivered, {failed} were refused")
print(json.dumps({"records": args.count, "records_per_s": round(args.count / seconds)}))
