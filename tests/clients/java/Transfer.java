import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transfer {
    static final String BROKER = "127.0.0.1:9092";

    public static void main(String[] args) {
        try (var producer = new KafkaProducer<>(Map.of("bootstrap.servers", BROKER, "transactional.id", "shop-1"),
                new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();      // from here on no earlier instance of shop-1 can write or commit

            producer.beginTransaction();
            producer.send(new ProducerRecord<>("orders", "one coffee"));
            producer.send(new ProducerRecord<>("payments", "3 euros"));
            producer.commitTransaction();     // both records, in both topics

            producer.beginTransaction();
            producer.send(new ProducerRecord<>("orders", "a mistake"));
            producer.flush();                 // the broker has it ...
            producer.abortTransaction();      // ... and no read_committed reader will ever see it
        }

        var seen = new TreeSet<String>();
        try (var consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", BROKER, "group.id", "books",
                "auto.offset.reset", "earliest", "isolation.level", "read_committed"),
                new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders", "payments"));
            for (int polls = 0; polls < 30 && seen.size() < 2; polls++) {
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> seen.add(record.value()));
            }
        }
        System.out.println(seen);
        if (!seen.equals(new TreeSet<>(List.of("one coffee", "3 euros")))) {
            System.exit(1);
        }
    }
}
