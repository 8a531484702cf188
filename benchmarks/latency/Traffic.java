import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Events at a steady rate, run from its source: {@code java Traffic.java create SERVERS TOPIC...}, or
 * {@code send SERVERS TOPIC RATE SECONDS USERS}. The broker says when it had each record.
 */
public final class Traffic {
  public static void main(String[] given) throws Exception {
    if (given[0].equals("create")) {
      create(given[1], List.of(given).subList(2, given.length));
    } else {
      send(given[1], given[2], Integer.parseInt(given[3]), Integer.parseInt(given[4]),
          Integer.parseInt(given[5]));
    }
  }

  private static void create(String servers, List<String> topics) throws Exception {
    Map<String, String> byBroker = Map.of("message.timestamp.type", "LogAppendTime");
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
      for (String topic : topics) {
        NewTopic made = new NewTopic(topic, 1, (short) 1).configs(byBroker);
        admin.createTopics(List.of(made)).all().get();
      }
    }
  }

  private static void send(String servers, String topic, int rate, int seconds, int users) {
    Random dice = new Random(20_260_101);
    Map<String, Object> settings = Map.of("bootstrap.servers", servers, "linger.ms", 0);
    StringSerializer text = new StringSerializer();
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
      long begun = System.nanoTime();
      for (long number = 0; number < (long) rate * seconds; number++) {
        long wait = begun + number * 1_000_000_000L / rate - System.nanoTime();
        if (wait > 0) {
          LockSupport.parkNanos(wait);
        }
        long now = System.currentTimeMillis();
        String event = dice.nextInt(users) + "," + number + "," + now;
        producer.send(new ProducerRecord<>(topic, event));
      }
    }
  }
}
