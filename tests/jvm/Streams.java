// A Kafka Streams application: two aggregations, each behind a repartition topic and with a changelog.
//
//   Streams HOST:PORT APPLICATION_ID STATE_DIR GUARANTEE SESSION_TIMEOUT_MS [GROUP_INSTANCE_ID]
//
// Topic `input` has sequence numbers 0, 1, 2 ... per key. Topic `output` gets, for each of them, what the first aggregation
// knows of the key by then: "number count breaks", breaks being the numbers that did not follow the one before. Topic
// `totals` gets, for each of those, how many there were of the key's bucket: 1, 2, 3 ...

import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

public class Streams {
    static final int BUCKETS = 7;

    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[1]);
        settings.put("state.dir", args[2]);
        settings.put("processing.guarantee", args[3]);
        settings.put("num.stream.threads", "2");
        settings.put("num.standby.replicas", "1");
        // Every update goes on to the next stage.
        settings.put("statestore.cache.max.bytes", "0");
        // Seldom where records are to be seen twice after a kill.
        settings.put("commit.interval.ms", args[3].equals("at_least_once") ? "3000" : "100");
        settings.put("session.timeout.ms", args[4]);
        settings.put("heartbeat.interval.ms", "500");
        if (args.length > 5) {
            settings.put("group.instance.id", args[5]);
        }
        settings.put("auto.offset.reset", "earliest");
        settings.put("repartition.purge.interval.ms", "5000");
        // Small enough for changelogs to be compacted while the application runs.
        settings.put("topic.segment.bytes", "1048576");
        settings.put("topic.min.cleanable.dirty.ratio", "0.1");
        settings.put("reconnect.backoff.ms", "20");
        settings.put("reconnect.backoff.max.ms", "500");

        KafkaStreams streams = new KafkaStreams(topology().build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("thread replaced: " + error);
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> System.out.println(now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }

    static StreamsBuilder topology() {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> updates = builder
                .stream("input", Consumed.with(Serdes.String(), Serdes.String()))
                .selectKey((key, number) -> "device-" + key)
                .groupByKey(Grouped.with("devices", Serdes.String(), Serdes.String()))
                .aggregate(() -> "-1 0 0", (key, number, state) -> follow(state, Long.parseLong(number)), store("devices"))
                .toStream();
        updates.to("output", Produced.with(Serdes.String(), Serdes.String()));
        updates.selectKey((device, state) -> "bucket-" + Math.floorMod(device.hashCode(), BUCKETS))
                .groupByKey(Grouped.with("buckets", Serdes.String(), Serdes.String()))
                .aggregate(() -> "0", (key, state, count) -> Long.toString(Long.parseLong(count) + 1), store("buckets"))
                .toStream()
                .to("totals", Produced.with(Serdes.String(), Serdes.String()));
        return builder;
    }

    static String follow(String state, long number) {
        String[] before = state.split(" ");
        long breaks = Long.parseLong(before[2]) + (number == Long.parseLong(before[0]) + 1 ? 0 : 1);
        return number + " " + (Long.parseLong(before[1]) + 1) + " " + breaks;
    }

    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> store(String name) {
        return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name)
                .withKeySerde(Serdes.String())
                .withValueSerde(Serdes.String())
                .withCachingDisabled();
    }
}
