import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Base64;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.HashingScheme;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TopicMetadata;
import org.apache.pulsar.client.impl.MessageImpl;
import org.apache.pulsar.client.impl.RoundRobinPartitionMessageRouterImpl;
import org.apache.pulsar.client.impl.crypto.MessageCryptoBc;
import org.apache.pulsar.common.api.proto.MessageMetadata;

/**
 * The Java client as a peer; integration/helpers/java_peer.py runs it.
 *
 * <pre>
 * partitions COUNT        for each line of the input, the base64 text of a key, the partitions of both schemes
 * read URL TOPIC...       the messages of each topic that has no partitions, a line of JSON each
 * write URL               for each line of the input, the entries that write() describes
 * --keys FOLDER ...       as before, with the keys NAME.public.pem and NAME.private.pem
 * </pre>
 */
public class PulsarPeer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    static {
        System.setOut(System.err); // for the client's log
    }

    private static CryptoKeyReader keys = null;

    private static PulsarClient client(String serviceUrl) throws Exception {
        return PulsarClient.builder().serviceUrl(serviceUrl).operationTimeout(2, TimeUnit.MINUTES).build();
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("--keys")) {
            keys = new Folder(Path.of(arguments[1]));
            arguments = Arrays.copyOfRange(arguments, 2, arguments.length);
        }
        switch (arguments[0]) {
            case "partitions" -> partitions(Integer.parseInt(arguments[1]));
            case "read" -> {
                try (PulsarClient client = client(arguments[1])) {
                    for (int number = 2; number < arguments.length; number++) {
                        read(client, arguments[number]);
                    }
                }
            }
            case "write" -> {
                try (PulsarClient client = client(arguments[1])) {
                    var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
                    for (String line = input.readLine(); line != null; line = input.readLine()) {
                        write(client, JSON.readTree(line));
                    }
                }
            }
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        OUT.flush();
    }

    /** The router of the Java client, asked for a message that has the key as its producer would put it. */
    private static void partitions(int count) throws Exception {
        TopicMetadata topic = () -> count;
        var string = new RoundRobinPartitionMessageRouterImpl(HashingScheme.JavaStringHash, 0, false, 1);
        var murmur = new RoundRobinPartitionMessageRouterImpl(HashingScheme.Murmur3_32Hash, 0, false, 1);
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Message<byte[]> message = withKey(Base64.getDecoder().decode(line));
            OUT.println(string.choosePartition(message, topic) + " " + murmur.choosePartition(message, topic));
        }
    }

    /** UTF-8 is a key, as key(String) sets it; what is not is keyBytes(byte[]), base64 text with a flag. */
    private static Message<byte[]> withKey(byte[] key) {
        var metadata = new MessageMetadata();
        String text = new String(key, StandardCharsets.UTF_8);
        if (Arrays.equals(text.getBytes(StandardCharsets.UTF_8), key)) {
            metadata.setPartitionKey(text).setPartitionKeyB64Encoded(false);
        } else {
            metadata.setPartitionKey(Base64.getEncoder().encodeToString(key)).setPartitionKeyB64Encoded(true);
        }
        return MessageImpl.create(metadata, ByteBuffer.allocate(0), Schema.BYTES, "topic");
    }

    private static void read(PulsarClient client, String topic) throws Exception {
        var builder = client.newReader().topic(topic).startMessageId(MessageId.earliest);
        if (keys != null) {
            builder.cryptoKeyReader(keys);
        }
        try (Reader<byte[]> reader = builder.create()) {
            while (reader.hasMessageAvailable()) {
                Message<byte[]> message = reader.readNext(2, TimeUnit.MINUTES);
                if (message == null) {
                    throw new IllegalStateException("no message came in time from " + topic);
                }
                OUT.println(JSON.writeValueAsString(described((MessageImpl<byte[]>) message)));
            }
        }
    }

    /**
     * Write groups of messages.
     *
     * <p>The task has a topic, a codec, whether groups are batches, perhaps of one key each, the size of chunks
     * (0: none), the names of encryption keys, and groups. A message has a value (base64 text or null), and perhaps
     * a key, one as bytes, an ordering key, properties and an event time.
     */
    private static void write(PulsarClient client, JsonNode task) throws Exception {
        boolean batching = task.get("batching").asBoolean();
        int chunk = task.get("chunk").asInt();
        var builder = client.newProducer().topic(task.get("topic").asText()).enableBatching(batching)
                .batchingMaxMessages(100_000).batchingMaxBytes(1 << 24)
                .compressionType(CompressionType.valueOf(task.get("codec").asText()));
        if (batching) {
            builder.batchingMaxPublishDelay(1, TimeUnit.MINUTES)
                    .batcherBuilder(task.path("key_based").asBoolean()
                            ? BatcherBuilder.KEY_BASED : BatcherBuilder.DEFAULT);
        }
        if (chunk > 0) {
            builder.enableChunking(true).chunkMaxMessageSize(chunk);
        }
        if (!task.get("names").isEmpty()) {
            builder.cryptoKeyReader(keys).messageCrypto(new OneAtATime());
            task.get("names").forEach(name -> builder.addEncryptionKey(name.asText()));
        }
        try (Producer<byte[]> producer = builder.create()) {
            for (JsonNode group : task.get("groups")) {
                for (JsonNode each : group) {
                    var message = producer.newMessage().value(each.get("value").binaryValue());
                    if (each.hasNonNull("key")) {
                        message.key(each.get("key").asText());
                    }
                    if (each.hasNonNull("key_bytes")) {
                        message.keyBytes(each.get("key_bytes").binaryValue());
                    }
                    if (each.hasNonNull("ordering_key")) {
                        message.orderingKey(each.get("ordering_key").binaryValue());
                    }
                    each.get("properties").properties()
                            .forEach(pair -> message.property(pair.getKey(), pair.getValue().asText()));
                    if (each.get("event_time").asLong() > 0) {
                        message.eventTime(each.get("event_time").asLong());
                    }
                    message.sendAsync();
                }
                producer.flushAsync(); // which ends the batch
            }
            producer.flush();
        }
    }

    /**
     * The client's own encryption, which takes no message while it makes a new data key.
     *
     * <p>A producer makes one when it is created and every four hours, in another thread than that which sends.
     * MessageCryptoBc has no lock: a message sent meanwhile may name the old key and be encrypted with the new one,
     * and nobody can decrypt it.
     */
    private static final class OneAtATime extends MessageCryptoBc {
        OneAtATime() {
            super("peer", true);
        }

        @Override
        public synchronized void addPublicKeyCipher(Set<String> names, CryptoKeyReader reader)
                throws PulsarClientException.CryptoException {
            super.addPublicKeyCipher(names, reader);
        }

        @Override
        public synchronized void encrypt(Set<String> names, CryptoKeyReader reader,
                Supplier<MessageMetadata> metadata, ByteBuffer payload, ByteBuffer encrypted)
                throws PulsarClientException {
            super.encrypt(names, reader, metadata, payload, encrypted);
        }
    }

    /** Keys in files. */
    private record Folder(Path path) implements CryptoKeyReader {
        @Override
        public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
            return read(name + ".public.pem");
        }

        @Override
        public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
            return read(name + ".private.pem");
        }

        private EncryptionKeyInfo read(String name) {
            try {
                return new EncryptionKeyInfo(Files.readAllBytes(path.resolve(name)), null);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    private static ObjectNode described(MessageImpl<byte[]> message) {
        ObjectNode node = JSON.createObjectNode();
        MessageMetadata metadata = message.getMessageBuilder();
        node.put("topic", message.getTopicName());
        node.put("value", message.getValue()); // null, or base64 text
        node.put("key", message.hasKey() ? message.getKeyBytes() : null);
        node.put("key_is_base64", message.hasBase64EncodedKey());
        node.put("ordering_key", message.hasOrderingKey() ? message.getOrderingKey() : null);
        node.putPOJO("properties", message.getProperties());
        node.put("event_time", message.getEventTime());
        node.put("publish_time", message.getPublishTime());
        node.put("deliver_at", metadata.hasDeliverAtTime() ? metadata.getDeliverAtTime() : null);
        node.put("sequence_id", message.getSequenceId());
        node.put("batched", metadata.hasNumMessagesInBatch());
        return node;
    }
}
