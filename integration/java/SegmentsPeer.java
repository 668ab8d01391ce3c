import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.v5.Checkpoint;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.schema.Schema;

/**
 * The Java client of Pulsar 5 on a scalable topic; integration/chaos/segments.py runs it.
 *
 * <pre>
 * write URL TOPIC KEYS COUNT RATE  writes COUNT messages, RATE a second: for KEYS keys in turn their next number,
 *                                  as the text KEY:NUMBER; ends when all are stored
 * read URL TOPIC SILENCE           reads by a checkpoint consumer from the earliest message on, until none comes
 *                                  for SILENCE seconds; prints how many came, and how many after a later one of
 *                                  their key
 * </pre>
 */
public class SegmentsPeer {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final int MAX_PENDING = 1000;

    static {
        System.setOut(System.err); // for the client's log
    }

    public static void main(String[] arguments) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[1]).build()) {
            if (arguments[0].equals("write")) {
                write(client, arguments[2], Integer.parseInt(arguments[3]), Integer.parseInt(arguments[4]),
                        Integer.parseInt(arguments[5]));
            } else {
                read(client, arguments[2], Duration.ofSeconds(Long.parseLong(arguments[3])));
            }
        }
        System.exit(0);
    }

    private static void write(PulsarClient client, String topic, int keys, int count, int rate) throws Exception {
        var pending = new Semaphore(MAX_PENDING);
        var failure = new AtomicReference<Throwable>();
        try (var producer = client.newProducer(Schema.bytes()).topic(topic).sendTimeout(Duration.ZERO).create()) {
            long began = System.nanoTime();
            for (int sent = 0; sent < count && failure.get() == null; sent++) {
                long early = began + sent * 1_000_000_000L / rate - System.nanoTime();
                if (early > 5_000_000) {
                    Thread.sleep(early / 1_000_000);
                }
                String key = "key-" + sent % keys;
                byte[] value = (key + ":" + sent / keys).getBytes(StandardCharsets.UTF_8);
                pending.acquire();
                producer.async().newMessage().key(key).value(value).send().whenComplete((id, error) -> {
                    if (error != null) {
                        failure.compareAndSet(null, error);
                    }
                    pending.release();
                });
            }
            pending.acquire(MAX_PENDING);
        }
        if (failure.get() != null) {
            throw new IllegalStateException("a message was not stored", failure.get());
        }
    }

    private static void read(PulsarClient client, String topic, Duration silence) throws Exception {
        Map<String, Long> next = new HashMap<>();
        long received = 0;
        long late = 0;
        try (var consumer = client.newCheckpointConsumer(Schema.bytes())
                .topic(topic).startPosition(Checkpoint.earliest()).create()) {
            Message<byte[]> message;
            while ((message = consumer.receive(silence)) != null) {
                String[] parts = new String(message.value(), StandardCharsets.UTF_8).split(":");
                long number = Long.parseLong(parts[1]);
                received++;
                if (number < next.getOrDefault(parts[0], 0L)) {
                    late++;
                } else {
                    next.put(parts[0], number + 1);
                }
            }
        }
        OUT.println(received + " " + late);
    }
}
