import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.v5.Checkpoint;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.config.BatchingPolicy;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.schema.Schema;
import org.apache.pulsar.common.scalable.HashRange;
import org.apache.pulsar.common.scalable.ScalableTopicHashing;

/**
 * The Java client of Pulsar 5 on a scalable topic; integration/chaos/segments.py and
 * integration/helpers/java_segments.py run it.
 *
 * <pre>
 * write URL TOPIC KEYS COUNT RATE  writes COUNT messages, RATE a second: for KEYS keys in turn their next number,
 *                                  as the text KEY:NUMBER; ends when all are stored
 * read URL TOPIC SILENCE           reads by a checkpoint consumer from the earliest message on, until none comes
 *                                  for SILENCE seconds; prints how many came, and how many after a later one of
 *                                  their key
 * produce URL TOPIC BATCHING       writes the message of each line of the input, "KEY VALUE" in base64, "-" for no
 *                                  key; BATCHING is true or false; ends when all are stored
 * consume URL TOPIC KIND SILENCE   reads by a queue, stream or checkpoint consumer (KIND) from the earliest message
 *                                  on, until none comes for SILENCE seconds; prints each as "KEY VALUE", as above
 * place LAYOUT...                  prints the number of the segment and of its entry bucket for each line of the
 *                                  input, a key in base64, in each layout: active segments with ; between them, each
 *                                  NUMBER:FIRST:LAST:SPLIT,SPLIT...
 * </pre>
 */
public class SegmentsPeer {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final int MAX_PENDING = 1000;

    static {
        System.setOut(System.err); // for the client's log
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("place")) {
            place(Arrays.asList(arguments).subList(1, arguments.length));
            System.exit(0);
        }
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[1]).build()) {
            String topic = arguments[2];
            switch (arguments[0]) {
                case "write" -> write(client, topic, Integer.parseInt(arguments[3]),
                        Integer.parseInt(arguments[4]), Integer.parseInt(arguments[5]));
                case "produce" -> produce(client, topic, Boolean.parseBoolean(arguments[3]));
                case "consume" -> consume(client, topic, arguments[3], seconds(arguments[4]));
                default -> read(client, topic, seconds(arguments[3]));
            }
        }
        System.exit(0);
    }

    private static Duration seconds(String text) {
        return Duration.ofSeconds(Long.parseLong(text));
    }

    private static BufferedReader input() {
        return new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    }

    private static String keyOf(String text) {
        return text.equals("-") ? null : new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
    }

    private static void produce(PulsarClient client, String topic, boolean batching) throws Exception {
        var pending = new Semaphore(MAX_PENDING);
        var failure = new AtomicReference<Throwable>();
        var policy = batching ? BatchingPolicy.builder().enabled(true).build() : BatchingPolicy.ofDisabled();
        try (var producer = client.newProducer(Schema.bytes()).topic(topic).batchingPolicy(policy)
                .sendTimeout(Duration.ZERO).create(); var lines = input()) {
            String line;
            while ((line = lines.readLine()) != null && failure.get() == null) {
                String[] parts = line.split(" ", 2);
                var message = producer.async().newMessage().value(Base64.getDecoder().decode(parts[1]));
                String key = keyOf(parts[0]);
                pending.acquire();
                (key == null ? message : message.key(key)).send().whenComplete((id, error) -> {
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

    private static void consume(PulsarClient client, String topic, String kind, Duration silence)
            throws Exception {
        Message<byte[]> message;
        switch (kind) {
            case "queue" -> {
                try (var consumer = client.newQueueConsumer(Schema.bytes()).topic(topic)
                        .subscriptionName("java-" + kind)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST).subscribe()) {
                    while ((message = consumer.receive(silence)) != null) {
                        print(message);
                        consumer.acknowledge(message.id());
                    }
                }
            }
            case "stream" -> {
                try (var consumer = client.newStreamConsumer(Schema.bytes()).topic(topic)
                        .subscriptionName("java-" + kind)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST).subscribe()) {
                    while ((message = consumer.receive(silence)) != null) {
                        print(message);
                        consumer.acknowledgeCumulative(message.id());
                    }
                }
            }
            default -> {
                try (var consumer = client.newCheckpointConsumer(Schema.bytes())
                        .topic(topic).startPosition(Checkpoint.earliest()).create()) {
                    while ((message = consumer.receive(silence)) != null) {
                        print(message);
                    }
                }
            }
        }
    }

    private static void print(Message<byte[]> message) {
        var encoder = Base64.getEncoder();
        String key = message.key().map(text -> encoder.encodeToString(text.getBytes(StandardCharsets.UTF_8)))
                .orElse("-");
        OUT.println(key + " " + encoder.encodeToString(message.value()));
    }

    /** By the classes of the client's producer, which are not public. */
    private static void place(List<String> layouts) throws Exception {
        Class<?> routing = Class.forName("org.apache.pulsar.client.impl.v5.SegmentRouter");
        Constructor<?> router = routing.getDeclaredConstructor();
        Constructor<?> active = Class.forName(routing.getName() + "$ActiveSegment").getDeclaredConstructors()[0];
        Method route = routing.getDeclaredMethod("route", String.class, List.class);
        Method bucketOf = Class.forName("org.apache.pulsar.client.impl.EntryBucketBatchContainer")
                .getDeclaredMethod("bucketOf", int[].class, int.class);
        for (var each : List.of(router, active, route, bucketOf)) {
            each.setAccessible(true);
        }
        List<List<Object>> segments = new ArrayList<>();
        List<Map<Long, int[]>> splits = new ArrayList<>();
        for (String layout : layouts) {
            segments.add(new ArrayList<>());
            splits.add(new HashMap<>());
            for (String text : layout.split(";")) {
                String[] parts = text.split(":", 4);
                long number = Long.parseLong(parts[0]);
                List<Integer> own = parts[3].isEmpty() ? List.of()
                        : Arrays.stream(parts[3].split(",")).map(Integer::valueOf).toList();
                var range = HashRange.of(Integer.parseInt(parts[1]), Integer.parseInt(parts[2]));
                segments.get(segments.size() - 1).add(
                        active.newInstance(number, range, "segment://a/b/c/" + number, null, own, List.of()));
                splits.get(splits.size() - 1).put(number, own.stream().mapToInt(Integer::intValue).toArray());
            }
        }
        Object chosen = router.newInstance();
        var out = new StringBuilder();
        try (var lines = input()) {
            String line;
            while ((line = lines.readLine()) != null) {
                String key = keyOf(line);
                int hash = ScalableTopicHashing.entryBucketHash(
                        ScalableTopicHashing.murmur(key.getBytes(StandardCharsets.UTF_8)));
                for (int number = 0; number < layouts.size(); number++) {
                    long segment = (long) route.invoke(chosen, key, segments.get(number));
                    out.append(segment).append(' ')
                            .append(bucketOf.invoke(null, splits.get(number).get(segment), hash)).append(' ');
                }
                if (out.length() > 1 << 16) {
                    OUT.print(out);
                    out.setLength(0);
                }
            }
        }
        OUT.println(out);
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
