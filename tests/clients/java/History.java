// Takes part in a recorded history (scripts/prove histories) with kafka-clients: transactional producers, a mover, a
// read_committed reader. The format of what it writes: docs/formats.md, "Histories".
//
//     History BROKER FILE FIRST SEED TOPIC:PARTITIONS,...
//
// FIRST is where its values begin; the topics: the movers' source, its own mover's target, others, at last the bank's. It
// stops when standard input ends.

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class History {
    record Topic(String name, int partitions) {}

    interface Call {
        void run() throws Exception;
    }

    static final String GROUP = "history-movers-java";
    static String broker;
    static BufferedWriter out;
    static final AtomicLong next = new AtomicLong();
    static volatile boolean stopped;

    // Nanoseconds of the machine's monotonic clock: on Linux the same in every process.
    static long now() {
        return System.nanoTime();
    }

    static synchronized void write(String kind, String fields) {
        try {
            out.write("{\"kind\":\"" + kind + "\"," + fields + "}\n");
        } catch (IOException error) {
            complain("the history", error);
            System.exit(1);
        }
    }

    static void complain(String what, Throwable error) {
        System.err.println("java: " + what + ": " + error);
    }

    // With its comma in front; nothing without an error.
    static String failed(Throwable error) {
        return error == null ? "" : ",\"error\":\"" + Errors.forException(error).name() + "\"";
    }

    static String span(long from, String client) {
        return "\"from\":" + from + ",\"to\":" + now() + ",\"client\":\"" + client + "\"";
    }

    static void introduce(String client, String id) {
        write("client", "\"at\":" + now() + ",\"client\":\"" + client + "\",\"library\":\"kafka-clients\""
                + (id == null ? "" : ",\"transactional_id\":\"" + id + "\",\"transaction_timeout_ms\":60000"));
    }

    static void assigned(String client) {
        write("assign", "\"at\":" + now() + ",\"client\":\"" + client + "\"");
    }

    static KafkaProducer<String, String> producer(String id) {
        return new KafkaProducer<>(Map.of("bootstrap.servers", broker, "transactional.id", id, "linger.ms", "0",
                "reconnect.backoff.ms", "20", "reconnect.backoff.max.ms", "200", "max.block.ms", "20000"),
                new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String group) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", broker, "isolation.level",
                "read_committed", "enable.auto.commit", "false", "auto.offset.reset", "earliest",
                "reconnect.backoff.ms", "20", "reconnect.backoff.max.ms", "200", "fetch.max.wait.ms", "100"));
        settings.put("group.id", group);
        settings.put("max.poll.records", "100");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static void initialize(KafkaProducer<String, String> producer, String client) {
        long from = now();
        RuntimeException failure = null;
        for (int tries = 0; tries < 4; tries++) {
            try {
                producer.initTransactions();
                failure = null;
                break;
            } catch (org.apache.kafka.common.errors.RetriableException error) {
                failure = error;
            }
        }
        write("init", span(from, client) + failed(failure));
        if (failure != null) {
            throw failure;
        }
    }

    static void send(KafkaProducer<String, String> producer, String client, long txn, Topic to, Random random, String more) {
        long value = next.incrementAndGet();
        int partition = random.nextInt(to.partitions());
        write("send", "\"at\":" + now() + ",\"client\":\"" + client + "\",\"txn\":" + txn + ",\"topic\":\"" + to.name()
                + "\",\"partition\":" + partition + ",\"value\":" + value + more);
        String payload = value + " " + "z".repeat(random.nextInt(100));
        producer.send(new ProducerRecord<>(to.name(), partition, "", payload), (metadata, error) -> write("sent",
                "\"at\":" + now() + ",\"value\":" + value
                        + (error == null ? ",\"offset\":" + metadata.offset() : failed(error))));
    }

    static long begin(KafkaProducer<String, String> producer, String client) {
        long txn = next.incrementAndGet();
        write("begin", "\"at\":" + now() + ",\"client\":\"" + client + "\",\"txn\":" + txn);
        producer.beginTransaction();
        return txn;
    }

    // Ends a transaction and notes how; false when the producer is to be used no more.
    static boolean end(KafkaProducer<String, String> producer, String client, long txn, boolean commit) {
        long from = now();
        RuntimeException failure = null;
        try {
            if (commit) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        } catch (RuntimeException error) {
            failure = error;
            complain(client, error);
        }
        write("end", span(from, client) + ",\"txn\":" + txn + ",\"commit\":" + commit + failed(failure));
        return failure == null;
    }

    static void produce(int index, List<Topic> topics, Random random) {
        String id = "java-" + index;
        Topic bank = topics.get(topics.size() - 1);
        for (int instance = 1; ; instance++) {
            String client = id + "." + instance;
            introduce(client, id);
            KafkaProducer<String, String> producer = producer(id);
            try {
                initialize(producer, client);
                while (true) {
                    if (stopped) {
                        producer.close();
                        return;
                    }
                    if (!transaction(producer, client, topics, bank, random)) {
                        break;
                    }
                }
            } catch (RuntimeException error) {
                complain(client, error);
            }
            producer.close(Duration.ZERO);
        }
    }

    static boolean transaction(KafkaProducer<String, String> producer, String client, List<Topic> topics, Topic bank,
            Random random) {
        long txn = begin(producer, client);
        try {
            if (random.nextInt(3) == 0) {
                int amount = 1 + random.nextInt(1000);
                send(producer, client, txn, bank, random, ",\"amount\":" + amount);
                send(producer, client, txn, bank, random, ",\"amount\":" + -amount);
            } else {
                for (int left = 1 + random.nextInt(6); left > 0; left--) {
                    send(producer, client, txn, topics.get(random.nextInt(topics.size() - 1)), random, "");
                }
            }
        } catch (RuntimeException error) {
            complain(client, error);
            return end(producer, client, txn, false);
        }
        if (random.nextInt(80) == 0) {
            return false; // as if it had died
        }
        return end(producer, client, txn, random.nextInt(8) != 0);
    }

    static long valueOf(ConsumerRecord<String, String> record) {
        return Long.parseLong(record.value().split(" ", 2)[0]);
    }

    static List<ConsumerRecord<String, String>> poll(KafkaConsumer<String, String> consumer, String client) {
        long from = now();
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        StringBuilder seen = new StringBuilder();
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
            found.add(record);
            seen.append(seen.length() == 0 ? "" : ",").append("[\"").append(record.topic()).append("\",")
                    .append(record.partition()).append(',').append(record.offset()).append(',').append(valueOf(record)).append(']');
        }
        if (!found.isEmpty()) {
            write("poll", span(from, client) + ",\"read_committed\":true,\"records\":[" + seen + "]");
        }
        return found;
    }

    static List<TopicPartition> partitionsOf(List<Topic> topics) {
        List<TopicPartition> all = new ArrayList<>();
        for (Topic topic : topics) {
            for (int partition = 0; partition < topic.partitions(); partition++) {
                all.add(new TopicPartition(topic.name(), partition));
            }
        }
        return all;
    }

    // To the group's offsets.
    static void beginAgain(KafkaConsumer<String, String> consumer, String client) {
        Set<TopicPartition> all = consumer.assignment();
        Map<TopicPartition, OffsetAndMetadata> places = consumer.committed(all, Duration.ofSeconds(60));
        assigned(client);
        for (TopicPartition partition : all) {
            OffsetAndMetadata place = places.get(partition);
            consumer.seek(partition, place == null ? 0 : place.offset());
        }
    }

    static void move(Topic source, Topic target, Random random) {
        String id = "java-mover";
        write("move", "\"group\":\"" + GROUP + "\",\"source\":\"" + source.name() + "\",\"target\":\"" + target.name() + "\"");
        for (int instance = 1; ; instance++) {
            String client = id + "." + instance;
            introduce(client, id);
            KafkaProducer<String, String> producer = producer(id);
            try (KafkaConsumer<String, String> consumer = consumer(GROUP)) {
                initialize(producer, client);
                consumer.assign(partitionsOf(List.of(source)));
                beginAgain(consumer, client);
                while (true) {
                    if (stopped) {
                        producer.close();
                        return;
                    }
                    List<ConsumerRecord<String, String>> records = poll(consumer, client);
                    if (!records.isEmpty() && !moveSome(producer, consumer, client, records, target, random)) {
                        break;
                    }
                }
            } catch (RuntimeException error) {
                complain(client, error);
            }
            producer.close(Duration.ZERO);
        }
    }

    static boolean moveSome(KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer, String client,
            List<ConsumerRecord<String, String>> records, Topic target, Random random) {
        long txn = begin(producer, client);
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        Map<Integer, Long> positions = new TreeMap<>();
        boolean commit = random.nextInt(12) != 0;
        try {
            for (ConsumerRecord<String, String> record : records) {
                send(producer, client, txn, target, random, ",\"input\":" + valueOf(record));
                ends.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                positions.put(record.partition(), record.offset() + 1);
            }
            long from = now();
            RuntimeException failure = null;
            try {
                producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            } catch (RuntimeException error) {
                failure = error;
            }
            StringBuilder said = new StringBuilder();
            positions.forEach((partition, offset) -> said.append(said.length() == 0 ? "" : ",").append("[\"")
                    .append(records.get(0).topic()).append("\",").append(partition).append(',').append(offset).append(']'));
            write("offsets", span(from, client) + ",\"txn\":" + txn + ",\"group\":\"" + GROUP + "\",\"positions\":[" + said
                    + "]" + failed(failure));
            if (failure != null) {
                throw failure;
            }
        } catch (RuntimeException error) {
            complain(client, error);
            commit = false;
        }
        if (!end(producer, client, txn, commit)) {
            return false;
        }
        if (!commit) {
            beginAgain(consumer, client);
        }
        return true;
    }

    static void read(List<Topic> topics) {
        String client = "java-reader";
        introduce(client, null);
        try (KafkaConsumer<String, String> consumer = consumer("history-readers-java")) {
            consumer.assign(partitionsOf(topics));
            assigned(client);
            consumer.seekToBeginning(consumer.assignment());
            while (!stopped) {
                poll(consumer, client);
            }
        }
    }

    static Thread start(String what, Call call, AtomicBoolean broken) {
        Thread thread = new Thread(() -> {
            try {
                call.run();
            } catch (Exception error) {
                complain(what, error);
                broken.set(true);
            }
        });
        thread.start();
        return thread;
    }

    public static void main(String[] args) throws Exception {
        broker = args[0];
        out = Files.newBufferedWriter(Path.of(args[1]));
        next.set(Long.parseLong(args[2]));
        long seed = Long.parseLong(args[3]);
        write("history", "\"version\":1,\"seed\":" + seed);
        List<Topic> topics = new ArrayList<>();
        for (String word : args[4].split(",")) {
            topics.add(new Topic(word.split(":")[0], Integer.parseInt(word.split(":")[1])));
        }
        List<Topic> written = new ArrayList<>(topics);
        written.remove(1); // the movers'
        AtomicBoolean broken = new AtomicBoolean();
        List<Thread> threads = new ArrayList<>();
        for (int index = 0; index < 2; index++) {
            int number = index;
            threads.add(start("producer", () -> produce(number, written, new Random(seed + number)), broken));
        }
        threads.add(start("mover", () -> move(topics.get(0), topics.get(1), new Random(seed + 7)), broken));
        threads.add(start("reader", () -> read(topics), broken));
        while (System.in.read() >= 0) {
        }
        stopped = true;
        for (Thread thread : threads) {
            thread.join();
        }
        out.close();
        System.exit(broken.get() ? 1 : 0);
    }
}
