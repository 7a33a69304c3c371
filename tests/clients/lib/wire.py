"""The little of the protocol that the scenario itself speaks: it makes topics, looks at stored batches, and reads
the names of the requests that pass through the proxy. What the clients send and read is theirs."""

import select
import socket
import struct
import threading

API_NAMES = {
    0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch",
    10: "FindCoordinator", 11: "JoinGroup", 12: "Heartbeat", 13: "LeaveGroup", 14: "SyncGroup",
    15: "DescribeGroups", 16: "ListGroups", 18: "ApiVersions", 19: "CreateTopics", 20: "DeleteTopics",
    22: "InitProducerId", 23: "OffsetForLeaderEpoch", 24: "AddPartitionsToTxn", 25: "AddOffsetsToTxn",
    26: "EndTxn", 28: "TxnOffsetCommit", 32: "DescribeConfigs", 60: "DescribeCluster",
    68: "ConsumerGroupHeartbeat", 71: "GetTelemetrySubscriptions", 75: "DescribeTopicPartitions",
}  # fmt: skip
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
HEADER_BYTES = 61


def _string(text):
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def request(address, key, version, body, seconds=30):
    """One request on a connection of its own, with request header v1; the bytes after the correlation id."""
    host, port = address.rsplit(":", 1)
    frame = struct.pack(">hhi", key, version, 7) + _string("scenario") + body
    with socket.create_connection((host, int(port)), seconds) as connection:
        connection.settimeout(seconds)
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        answer = _exactly(connection, struct.unpack(">i", _exactly(connection, 4))[0])
    return answer[4:]


def _exactly(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise OSError("the broker closed the connection")
        data += more
    return data


def create_topic(address, name, partitions):
    body = struct.pack(">i", 1) + _string(name) + struct.pack(">ihii", partitions, 1, 0, 0) + struct.pack(">i?", 20000, False)
    answer = request(address, 19, 2, body)
    name_bytes = struct.unpack_from(">h", answer, 8)[0]
    code = struct.unpack_from(">h", answer, 10 + name_bytes)[0]
    if code not in (0, 36):
        raise RuntimeError(f"the broker did not create topic {name}: error {code}")


def batches(address, topic, partition=0):
    """The stored batches from offset 0 on: dicts with base_offset, codec, transactional, control, producer_id, count."""
    found, offset = [], 0
    while True:
        body = struct.pack(">iiiibii", -1, 200, 1, 8 << 20, 0, 0, -1)
        body += struct.pack(">i", 1) + _string(topic) + struct.pack(">iiiqqi", 1, partition, -1, offset, -1, 4 << 20)
        answer = request(address, 1, 11, body + struct.pack(">i", 0) + _string(""))
        at = 14 + 2 + struct.unpack_from(">h", answer, 14)[0] + 4
        _, code, _, _, _, aborted = struct.unpack_from(">ihqqqi", answer, at)
        if code:
            raise RuntimeError(f"fetch of {topic} at {offset}: error {code}")
        records = answer[at + 34 + 16 * max(aborted, 0) + 8 :]
        before = offset
        while len(records) >= HEADER_BYTES:
            base, length = struct.unpack_from(">qi", records)
            if len(records) < 12 + length:
                break
            attributes, last_delta = struct.unpack_from(">hi", records, 21)
            producer_id, epoch, sequence, count = struct.unpack_from(">qhii", records, 43)
            found.append(
                {
                    "base_offset": base,
                    "codec": CODECS[attributes & 7],
                    "transactional": bool(attributes & 16),
                    "control": bool(attributes & 32),
                    "producer_id": producer_id,
                    "epoch": epoch,
                    "sequence": sequence,
                    "count": count,
                    "records": records[HEADER_BYTES : 12 + length],
                }
            )
            offset = base + last_delta + 1
            records = records[12 + length :]
        if offset == before:
            return found


def committed_view(address, topic, partition=0):
    """The values that a read_committed reader must see: those outside of transactions, and those of transactions
    whose marker says commit, in the order of the log. For batches that are not compressed."""
    found, open_positions = [], {}
    for batch in batches(address, topic, partition):
        if batch["control"]:
            mine = open_positions.pop(batch["producer_id"], [])
            if _key(batch["records"])[:4] != b"\0\0\0\1":
                for position in mine:
                    found[position] = []
            continue
        if batch["transactional"]:
            open_positions.setdefault(batch["producer_id"], []).append(len(found))
        found.append(_values(batch["records"]))
    for still_open in open_positions.values():
        for position in still_open:
            found[position] = []
    return [value for values in found for value in values]


def _varint(data, at):
    shift = number = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at


def _key_and_value(data, at):
    size, at = _varint(data, at)
    end = at + size
    _, at = _varint(data, at + 1)
    _, at = _varint(data, at)
    size, at = _varint(data, at)
    key, at = data[at : at + max(size, 0)], at + max(size, 0)
    size, at = _varint(data, at)
    return key, data[at : at + max(size, 0)], end


def _key(records):
    return _key_and_value(records, 0)[0]


def _values(records):
    values, at = [], 0
    while at < len(records):
        _, value, at = _key_and_value(records, at)
        values.append(value.decode())
    return values


class Proxy:
    """Passes bytes between the client and the broker, notes each request's key and version, and cuts when told."""

    def __init__(self, port):
        self.broker_port = None
        self.spoken = {}
        self.wiretap = None
        self.connections = []
        self.lock = threading.Lock()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(64)
        self.address = f"127.0.0.1:{port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                broker = socket.create_connection(("127.0.0.1", self.broker_port), 5)
            except OSError:
                if self.listener.fileno() < 0:
                    return
                client.close()
                continue
            for end in (client, broker):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.connections.append((client, broker))
            threading.Thread(target=self._pump, args=(client, broker), daemon=True).start()

    def _pump(self, client, broker):
        unread = {client: bytearray(), broker: bytearray()}
        asked = {}
        try:
            while True:
                for source in select.select([client, broker], [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        raise OSError
                    self._note(unread[source], data, source is client, asked)
                    (broker if source is client else client).sendall(data)
        except (OSError, ValueError):
            pass
        _close(client)
        _close(broker)

    def _note(self, buffer, data, from_client, asked):
        """Takes whole frames from the buffer: the versions spoken and, on request, the bytes themselves."""
        buffer += data
        while len(buffer) >= 4:
            size = struct.unpack_from(">i", buffer)[0]
            if size < 0 or len(buffer) < 4 + size:
                return
            frame = bytes(buffer[4 : 4 + size])
            del buffer[: 4 + size]
            if from_client and size >= 8:
                key, version, correlation = struct.unpack_from(">hhi", frame)
                asked[correlation] = (key, version)
                self.spoken[key] = max(version, self.spoken.get(key, 0))
            else:
                key, version = asked.pop(struct.unpack_from(">i", frame)[0], (-1, -1)) if size >= 4 else (-1, -1)
            if self.wiretap:
                way = "->" if from_client else "<-"
                line = f"{way} {API_NAMES.get(key, key)} v{version} {size} bytes {frame[:400].hex()}\n"
                self.wiretap.write(line)
                self.wiretap.flush()

    def cut(self):
        """Closes every connection that passes through; returns how many there were."""
        with self.lock:
            connections, self.connections = self.connections, []
        for pair in connections:
            for end in pair:
                _close(end)
        return len(connections)

    def close(self):
        self.listener.close()
        self.cut()


def _close(end):
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()
