"""The one scenario that every client plays. A step is a function over a Stage; it passes when it returns, fails when
it raises, and is NONE when the client's API has no word for something (the program answers `none` and why).

The client's program reads verbs from its standard input, one a line, fields separated by tabs, and answers each with
one line: `ok` and values, `none` and the reason, or `err`, the error's kind (`fenced`, `fatal`, `other`) and its text.

    hello                                     ok NAME VERSION
    connect                                   ok, or the client's own words when the broker does not let it in (these
                                              clients: those of tests/clients/secure)
    reconnects                                ok, or none when the client ends when its connections are cut
    codecs                                    ok CODEC...        what the client can compress with
    producer P plain|idempotent|CODEC         a producer named P; CODEC as in Kafka's compression.type
    producer P transactional ID               the same, with its transactional id initialized
    send P TOPIC PARTITION VALUE              ok when the broker has acknowledged it
    many P TOPIC PARTITION PREFIX COUNT       PREFIX0, PREFIX1, ...; ok when all are acknowledged
    begin P / commit P / abort P / close P
    process P GROUP INPUT OUTPUT COUNT commit|abort
                                              one transaction: COUNT records of INPUT, read as a member of GROUP, are
                                              written to OUTPUT with a `*` behind, with the offsets, then the end
    committed GROUP TOPIC PARTITION           ok OFFSET, -1 when there is none
    read TOPIC PARTITION LEVEL LAST MS        everything from offset 0 up to the value LAST, or for MS milliseconds; a
                                              client that cannot leave out aborted records answers none to
                                              read_committed, and the scenario looks itself (isolation is NONE then)
    join GROUP TOPIC                          a member of GROUP from now on; session timeout 6 s
    assignment                                ok PARTITION...    what the member has now
    received                                  ok VALUE...        what the member has read so far
    create-topic TOPIC PARTITIONS             through the client's admin
    describe-config TOPIC KEY                 ok VALUE
"""

import threading
import time

from wire import batches


class NoWord(Exception):
    """The client's API cannot express it."""


class ClientError(Exception):
    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind = kind


STEPS = {}


def step(title):
    def add(function):
        STEPS[function.__name__] = (title, function)
        return function

    return add


def same(got, expected, what):
    if got != expected:
        raise AssertionError(f"{what}: got {brief(got)}, expected {brief(expected)}")


def brief(values):
    text = str(values)
    return text if len(text) < 300 else text[:140] + " ... " + text[-140:]


@step("produce and consume")
def plain(stage):
    topic = stage.topic()
    c = stage.client()
    c.do("producer", "p", "plain")
    for value in ("one", "two", "three"):
        c.do("send", "p", topic, 0, value)
    same(c.read(topic, "read_uncommitted", "three"), ["one", "two", "three"], "read back")


@step("idempotent produce")
def idempotent(stage):
    """Connections are cut while records are in flight: what is repeated must not be there twice."""
    topic = stage.topic()
    c = stage.client()
    cut, rounds = [], 0
    cutter = threading.Thread(target=lambda: [(time.sleep(0.1), cut.append(stage.proxy.cut())) for _ in range(5)])
    c.do("producer", "p", "idempotent")
    c.do("send", "p", topic, 0, "first")
    try:
        c.do("reconnects")
        cutter.start()
    except NoWord as reason:
        stage.remark = f"connections not cut: {reason}"
    try:
        while cutter.is_alive() or rounds < 3:
            c.do("many", "p", topic, 0, f"{rounds}.", 50)
            rounds += 1
    finally:
        if cutter.ident:
            cutter.join()
    assert stage.remark or sum(cut) >= 3, f"only {sum(cut)} connections were cut"
    c.do("send", "p", topic, 0, "last")
    expected = ["first"] + [f"{r}.{i}" for r in range(rounds) for i in range(50)] + ["last"]
    same(c.read(topic, "read_uncommitted", "last"), expected, "in order, once each")
    ids = {b["producer_id"] for b in batches(stage.direct, topic)}
    assert ids and -1 not in ids, "the client says idempotent and sends batches without a producer id"


@step("transaction, commit")
def commit(stage):
    topic, other = stage.topic(), stage.topic()
    c = stage.client()
    c.do("producer", "p", "transactional", stage.fresh("tx"))
    for number in range(3):
        c.do("begin", "p")
        c.do("send", "p", topic, 0, f"a{number}")
        try:
            c.do("send", "p", other, 0, f"b{number}")
        except NoWord as reason:
            stage.remark = str(reason)
        c.do("commit", "p")
    same(stage.committed(c, topic, "a2"), ["a0", "a1", "a2"], "one topic")
    if not stage.remark.startswith("one topic"):
        same(stage.committed(c, other, "b2"), ["b0", "b1", "b2"], "the other topic")
    stored = batches(stage.direct, topic)
    same([b["control"] for b in stored], [False, True] * 3, "a marker behind each transaction")
    assert all(b["transactional"] for b in stored), "the client sends batches that are not transactional"


@step("transaction, abort")
def abort(stage):
    topic = stage.topic()
    c = stage.client()
    c.do("producer", "p", "transactional", stage.fresh("tx"))
    c.do("begin", "p")
    c.do("send", "p", topic, 0, "mistake")
    c.do("abort", "p")
    c.do("begin", "p")
    c.do("send", "p", topic, 0, "right")
    c.do("commit", "p")
    same(stage.committed(c, topic, "right"), ["right"], "committed view")


@step("consume-transform-produce")
def process(stage):
    """An aborted round leaves neither records nor offsets; the round after it reads the same input again."""
    source, sink, group = stage.topic(), stage.topic(), stage.fresh("g")
    c = stage.client()
    c.do("producer", "in", "plain")
    for number in range(10):
        c.do("send", "in", source, 0, f"{number}")
    c.do("producer", "p", "transactional", stage.fresh("tx"))
    c.do("process", "p", group, source, sink, 4, "abort")
    same(c.do("committed", group, source, 0), ["-1"], "offset after the abort")
    c.do("process", "p", group, source, sink, 6, "commit")
    same(c.do("committed", group, source, 0), ["6"], "offset after the first commit")
    c.do("process", "p", group, source, sink, 4, "commit")
    same(c.do("committed", group, source, 0), ["10"], "offset after the second commit")
    same(stage.committed(c, sink, "9*"), [f"{n}*" for n in range(10)], "output")


@step("read_committed and read_uncommitted")
def isolation(stage):
    topic = stage.topic()
    c = stage.client()
    c.do("producer", "plain", "plain")
    c.do("producer", "p", "transactional", stage.fresh("tx"))
    c.do("send", "plain", topic, 0, "plain")
    c.do("begin", "p")
    c.do("send", "p", topic, 0, "open")
    c.do("send", "plain", topic, 0, "behind")
    same(c.read(topic, "read_uncommitted", "behind"), ["plain", "open", "behind"], "uncommitted view, open")
    same(c.read(topic, "read_committed", "behind", 2500), ["plain"], "committed view, open")
    c.do("abort", "p")
    c.do("send", "plain", topic, 0, "end")
    same(c.read(topic, "read_uncommitted", "end"), ["plain", "open", "behind", "end"], "uncommitted view, aborted")
    same(c.read(topic, "read_committed", "end"), ["plain", "behind", "end"], "committed view, aborted")


@step("a zombie is fenced")
def zombie(stage):
    topic, name = stage.topic(), stage.fresh("tx")
    old, new = stage.client(), stage.client()
    old.do("producer", "p", "transactional", name)
    old.do("begin", "p")
    old.do("send", "p", topic, 0, "zombie 1")
    new.do("producer", "p", "transactional", name)
    new.do("begin", "p")
    new.do("send", "p", topic, 0, "mine")
    new.do("commit", "p")
    errors = []
    for verb in (("send", "p", topic, 0, "zombie 2"), ("commit", "p")):
        try:
            old.do(*verb)
            assert verb[0] == "send" or errors, "the zombie committed"
        except ClientError as error:
            errors.append(error)
    assert errors, "nothing told the zombie"
    new.do("begin", "p")
    new.do("send", "p", topic, 0, "mine too")
    new.do("commit", "p")
    same(stage.committed(new, topic, "mine too"), ["mine", "mine too"], "committed view")
    kinds = {error.kind for error in errors}
    assert kinds & {"fenced", "fatal"}, f"the zombie was told {errors[0]}, which is not the end of it"


@step("group of two, rebalance, crash")
def group(stage):
    topic, name = stage.topic(4), stage.fresh("g")
    one, two, writer = stage.client(), stage.client(), stage.client()
    writer.do("producer", "p", "plain")
    one.do("join", name, topic)
    stage.until(lambda: sorted(one.do("assignment")) == ["0", "1", "2", "3"], "one member has all four partitions", 40)
    two.do("join", name, topic)

    def shared():
        first, second = one.do("assignment"), two.do("assignment")
        return len(first) == 2 and len(second) == 2 and sorted(first + second) == ["0", "1", "2", "3"]

    stage.until(shared, "two members have two partitions each", 60)
    for partition in range(4):
        writer.do("send", "p", topic, partition, f"shared {partition}")
    expected = {f"shared {partition}" for partition in range(4)}
    stage.until(lambda: set(one.do("received") + two.do("received")) == expected, "both together read everything", 30)
    if len(one.do("received") + two.do("received")) != 4:
        stage.remark = "some records read by both, of partitions given up"
    two.kill()
    stage.until(lambda: sorted(one.do("assignment")) == ["0", "1", "2", "3"], "the survivor has all four partitions", 60)
    for partition in range(4):
        writer.do("send", "p", topic, partition, f"alone {partition}")
    expected = {f"alone {partition}" for partition in range(4)}
    stage.until(lambda: expected <= set(one.do("received")), "the survivor reads everything", 30)


@step("compression")
def codecs(stage):
    c = stage.client()
    names = c.do("codecs")
    assert names, "no codec"
    stage.remark = ", ".join(names)
    for name in names:
        topic = stage.topic()
        c.do("producer", name, name)
        text = f"{name} " + "again " * 200
        for number in range(3):
            c.do("send", name, topic, 0, f"{text}{number}")
        same(c.read(topic, "read_uncommitted", f"{text}2"), [f"{text}{n}" for n in range(3)], name)
        same({b["codec"] for b in batches(stage.direct, topic)}, {name}, "codec of the stored batches")


@step("reconnect inside a transaction")
def reconnect(stage):
    topic = stage.topic()
    c = stage.client()
    c.do("reconnects")
    c.do("producer", "p", "transactional", stage.fresh("tx"))
    cuts = 0
    for number in range(3):
        c.do("begin", "p")
        c.do("send", "p", topic, 0, f"{number} before")
        cuts += stage.proxy.cut()
        c.do("send", "p", topic, 0, f"{number} after")
        cuts += stage.proxy.cut()
        c.do("commit", "p")
        cuts += stage.proxy.cut()
    assert cuts >= 6, f"only {cuts} connections were cut"
    expected = [f"{n} {when}" for n in range(3) for when in ("before", "after")]
    same(stage.committed(c, topic, "2 after"), expected, "committed view")


@step("admin")
def admin(stage):
    c = stage.client()
    topic = stage.fresh("made")
    c.do("create-topic", topic, 3)
    same(c.do("describe-config", topic, "cleanup.policy"), ["delete"], "cleanup.policy")
    c.do("producer", "p", "plain")
    c.do("send", "p", topic, 2, "in the last partition")
    same(c.read(topic, "read_uncommitted", "in the last partition", partition=2), ["in the last partition"], "read")
    try:
        c.do("create-topic", topic, 3)
    except ClientError:
        return
    raise AssertionError("the topic was created twice")
