// Transactions of one record each, back to back, with Apache Kafka's own Java client: HOST:PORT TOPIC SECONDS. The topic
// is made.
// Prints {"transactions":N,"txn_per_s":R,"commit_p50_ms":M}.

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Transactions {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("transactional.id", "bench-" + UUID.randomUUID());
        settings.put("linger.ms", "0");
        try (var admin = Admin.create(Map.of("bootstrap.servers", (Object) args[0]))) {
            admin.createTopics(List.of(new NewTopic(args[1], 1, (short) 1))).all().get();
        }
        long seconds = Long.parseLong(args[2]);
        long[] commits = new long[1 << 20];
        int count = 0;
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            byte[] value = new byte[100];
            // The first transactions load classes and are not counted.
            long warm = System.nanoTime() + Math.min(seconds, 3) * 1_000_000_000L;
            long begin = 0;
            while (true) {
                long now = System.nanoTime();
                if (begin == 0 && now > warm) begin = now;
                if (begin != 0 && (now - begin > seconds * 1_000_000_000L || count == commits.length)) break;
                producer.beginTransaction();
                var sent = producer.send(new ProducerRecord<>(args[1], 0, null, value));
                sent.get();
                long commit = System.nanoTime();
                producer.commitTransaction();
                if (begin != 0) commits[count++] = System.nanoTime() - commit;
            }
            double elapsed = (System.nanoTime() - begin) / 1e9;
            Arrays.sort(commits, 0, count);
            System.out.printf("{\"transactions\":%d,\"txn_per_s\":%.1f,\"commit_p50_ms\":%.3f}%n",
                count, count / elapsed, commits[count / 2] / 1e6);
        }
    }
}
