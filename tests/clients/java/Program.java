// The scenario's verbs (tests/clients/lib/scenario.py) in Java, on kafka-clients.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.UnsupportedVersionException;

public class Program {
    final String broker;
    final String version;
    final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    final Set<String> assigned = Collections.synchronizedSet(new TreeSet<>());
    final List<String> received = Collections.synchronizedList(new ArrayList<>());

    Program(String broker, String version) {
        this.broker = broker;
        this.version = version;
    }

    public static void main(String[] args) throws Exception {
        Program program = new Program(args[0], args[1]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String answer;
            try {
                answer = String.join("\t", program.perform(line.split("\t", -1)));
                answer = answer.isEmpty() ? "ok" : "ok\t" + answer;
            } catch (Exception error) {
                error.printStackTrace();
                Throwable root = error;
                while (root.getCause() != null) {
                    root = root.getCause();
                }
                String why = root == error ? error.toString() : error + "; " + root;
                answer = "err\t" + kind(error) + "\t" + why.replaceAll("\\s+", " ");
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0);
    }

    static String kind(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof ProducerFencedException || cause instanceof InvalidProducerEpochException) {
                return "fenced";
            }
            if (cause instanceof OutOfOrderSequenceException || cause instanceof AuthorizationException
                    || cause instanceof UnsupportedVersionException) {
                return "fatal";
            }
        }
        return "other";
    }

    List<String> perform(String[] word) throws Exception {
        switch (word[0]) {
            case "hello":
                return List.of("kafka-clients", version);
            case "connect":
                Properties settings = base();
                settings.put("default.api.timeout.ms", "20000");
                settings.put("request.timeout.ms", "20000");
                try (Admin admin = Admin.create(settings)) {
                    admin.listTopics().names().get();
                }
                return List.of();
            case "reconnects":
                return List.of();
            case "codecs":
                return List.of("none", "gzip", "snappy", "lz4", "zstd");
            case "producer":
                producer(word[1], word[2], word.length > 3 ? word[3] : null);
                return List.of();
            case "send":
                send(word[1], word[2], Integer.parseInt(word[3]), word[4]).get();
                return List.of();
            case "many":
                List<Future<RecordMetadata>> futures = new ArrayList<>();
                for (int i = 0; i < Integer.parseInt(word[5]); i++) {
                    futures.add(send(word[1], word[2], Integer.parseInt(word[3]), word[4] + i));
                }
                for (Future<RecordMetadata> future : futures) {
                    future.get();
                }
                return List.of();
            case "begin":
                producers.get(word[1]).beginTransaction();
                return List.of();
            case "commit":
                producers.get(word[1]).commitTransaction();
                return List.of();
            case "abort":
                producers.get(word[1]).abortTransaction();
                return List.of();
            case "close":
                producers.remove(word[1]).close();
                return List.of();
            case "process":
                process(producers.get(word[1]), word[2], word[3], word[4], Integer.parseInt(word[5]), word[6]);
                return List.of();
            case "committed":
                return committed(word[1], new TopicPartition(word[2], Integer.parseInt(word[3])));
            case "read":
                return read(new TopicPartition(word[1], Integer.parseInt(word[2])), word[3], word[4],
                        Long.parseLong(word[5]));
            case "join":
                join(word[1], word[2]);
                return List.of();
            case "assignment":
                synchronized (assigned) {
                    return new ArrayList<>(assigned);
                }
            case "received":
                synchronized (received) {
                    return new ArrayList<>(received);
                }
            case "create-topic":
                try (Admin admin = Admin.create(base())) {
                    admin.createTopics(List.of(new NewTopic(word[1], Integer.parseInt(word[2]), (short) 1))).all().get();
                }
                return List.of();
            case "describe-config":
                try (Admin admin = Admin.create(base())) {
                    ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, word[1]);
                    return List.of(admin.describeConfigs(List.of(topic)).all().get().get(topic).get(word[2]).value());
                }
            default:
                throw new IllegalArgumentException("no such verb: " + word[0]);
        }
    }

    Properties base() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", broker);
        settings.put("reconnect.backoff.ms", "20");
        settings.put("reconnect.backoff.max.ms", "200");
        secure(settings);
        return settings;
    }

    static void secure(Properties settings) {
        if (System.getenv("TIDEMARK_TEST_CA") == null) {
            return;
        }
        settings.put("security.protocol", "SSL");
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", System.getenv("TIDEMARK_TEST_CA"));
        if (System.getenv("TIDEMARK_TEST_CERTIFICATE") != null) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.location", System.getenv("TIDEMARK_TEST_BOTH"));
        }
        String mechanism = System.getenv("TIDEMARK_TEST_MECHANISM");
        if (mechanism == null) {
            return;
        }
        settings.put("security.protocol", "SASL_SSL");
        settings.put("sasl.mechanism", mechanism);
        String security = "org.apache.kafka.common.security.";
        if (mechanism.equals("OAUTHBEARER")) {
            String url = "file://" + System.getenv("TIDEMARK_TEST_TOKEN_FILE");
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url);
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", System.getenv("TIDEMARK_TEST_TOKEN_FILE"));
            settings.put("sasl.oauthbearer.token.endpoint.url", url);
            settings.put("sasl.login.callback.handler.class", security + "oauthbearer.OAuthBearerLoginCallbackHandler");
            settings.put("sasl.jaas.config", security + "oauthbearer.OAuthBearerLoginModule required;");
            // Who is not let in any more hears of it when records have waited for so long.
            settings.put("request.timeout.ms", "15000");
            settings.put("delivery.timeout.ms", "20000");
        } else {
            String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
            settings.put("sasl.jaas.config", String.format("%s%s required username=\"%s\" password=\"%s\";", security, module,
                    System.getenv("TIDEMARK_TEST_USER"), System.getenv("TIDEMARK_TEST_PASSWORD")));
        }
    }

    void producer(String name, String kind, String transactionalId) {
        Properties settings = base();
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        switch (kind) {
            case "plain" -> settings.put("enable.idempotence", "false");
            case "idempotent" -> settings.put("enable.idempotence", "true");
            case "transactional" -> settings.put("transactional.id", transactionalId);
            default -> settings.put("compression.type", kind);
        }
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        if (transactionalId != null) {
            producer.initTransactions();
        }
        producers.put(name, producer);
    }

    Future<RecordMetadata> send(String producer, String topic, int partition, String value) {
        return producers.get(producer).send(new ProducerRecord<>(topic, partition, null, value));
    }

    KafkaConsumer<String, String> consumer(String group, String level) {
        Properties settings = base();
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("isolation.level", level);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        if (group != null) {
            settings.put("group.id", group);
        }
        return new KafkaConsumer<>(settings);
    }

    void process(KafkaProducer<String, String> producer, String group, String input, String output, int count,
            String end) {
        try (KafkaConsumer<String, String> consumer = consumer(group, "read_committed")) {
            consumer.subscribe(List.of(input));
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            long deadline = System.currentTimeMillis() + 30_000;
            while (records.size() < count) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("only " + records.size() + " records within 30 s");
                }
                consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            }
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<String, String> record : records.subList(0, count)) {
                producer.send(new ProducerRecord<>(output, 0, null, record.value() + "*"));
                offsets.put(new TopicPartition(input, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            if (end.equals("commit")) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
    }

    List<String> committed(String group, TopicPartition partition) {
        try (KafkaConsumer<String, String> consumer = consumer(group, "read_committed")) {
            OffsetAndMetadata found = consumer.committed(Set.of(partition)).get(partition);
            return List.of(found == null ? "-1" : Long.toString(found.offset()));
        }
    }

    List<String> read(TopicPartition partition, String level, String last, long ms) {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(null, level)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.currentTimeMillis() + ms;
            while (System.currentTimeMillis() < deadline && !values.contains(last)) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> values.add(record.value()));
            }
        }
        return values;
    }

    void join(String group, String topic) {
        KafkaConsumer<String, String> consumer = consumer(group, "read_committed");
        consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                partitions.forEach(p -> assigned.remove(Integer.toString(p.partition())));
                consumer.commitSync();
            }

            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                partitions.forEach(p -> assigned.add(Integer.toString(p.partition())));
            }
        });
        Thread thread = new Thread(() -> {
            while (true) {
                try {
                    consumer.poll(Duration.ofMillis(100)).forEach(record -> received.add(record.value()));
                } catch (KafkaException error) {
                    error.printStackTrace();
                }
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}
