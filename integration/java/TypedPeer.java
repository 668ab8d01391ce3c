import com.fasterxml.jackson.annotation.JsonFormat;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.DeserializationContext;
import com.fasterxml.jackson.databind.JsonDeserializer;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.JsonSerializer;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializerProvider;
import com.fasterxml.jackson.databind.module.SimpleModule;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.GeneratedMessageV3;
import com.google.protobuf.Message;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.sql.Time;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.avro.LogicalTypes;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericEnumSymbol;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.schema.GenericObject;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.client.impl.schema.StringSchema;
import org.apache.pulsar.client.impl.schema.generic.GenericAvroRecord;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;

/**
 * The Java client as a peer for values with a schema; integration/helpers/java_values.py runs it.
 *
 * <pre>
 * write URL    for each line {"topic", "schema", "batching", "values"} of the input: one message a value, in order
 * read URL     for each line {"topic", "schema"}: a line {"topic", "version", "value"} for each message
 * </pre>
 *
 * <p>A schema is {"type"} and, by its type: "charset"; "class"; "definition", of Avro, whose values are in Avro's own
 * JSON; "key", "value", "encoding". {"type": "AUTO_CONSUME"} reads what the topic says. Values are as
 * integration/helpers/java_values.py says: bytes and enums are texts, times are numbers.
 */
public class TypedPeer {
    public enum Color { RED, GREEN }

    /** A record in records. */
    public static class Part {
        public String name;
        public Integer zip;
        public Color color;
        public List<Long> codes;
    }

    /** What both AVRO and JSON can say, each type alone and nullable, nested, in lists and in maps. */
    public static class Order {
        public boolean flag;
        public short tiny;
        public int number;
        public long large;
        public float small;
        public double wide;
        public Boolean maybeFlag;
        public Integer maybeNumber;
        public Long maybeLarge;
        public Float maybeSmall;
        public Double maybeWide;
        public String text;
        public byte[] raw;
        public Color color;
        public Instant at;
        public LocalDate day;
        public UUID id;
        @org.apache.avro.reflect.AvroSchema(
                "{\"type\":\"bytes\",\"logicalType\":\"decimal\",\"precision\":12,\"scale\":2}")
        public BigDecimal price;
        public BigDecimal exact;
        public Part part;
        public List<Part> parts;
        public Map<String, Long> counts;
        public Map<String, Part> named;
        public List<String> words;
        public List<List<Integer>> lists;
    }

    /** What the classes of other clients have as well. */
    public static class Line {
        public String name;
        public Integer zip;
    }

    /** The number is never null. */
    public static class Item {
        public long id;
        public String item;
        public List<Line> lines;
    }

    /** The number may be null. */
    public static class BoxedItem {
        public Long id;
        public String item;
        public List<Line> lines;
    }

    /** Times as plain numbers. */
    public static class Times {
        public long at;
        public Long local;
        public int day;
    }

    private static final ObjectMapper JSON = mapper();
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    static {
        System.setOut(System.err); // for the client's log
    }

    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var builder = PulsarClient.builder().serviceUrl(arguments[1]).operationTimeout(2, TimeUnit.MINUTES);
        try (PulsarClient client = builder.build()) {
            var producers = new HashMap<String, Producer<Object>>();
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                JsonNode task = JSON.readTree(line);
                if (arguments[0].equals("write")) {
                    write(client, task, producers);
                } else {
                    read(client, task);
                }
            }
        }
        OUT.flush();
    }

    /** One producer for each topic and schema stays open, so that lines may interleave what two of them write. */
    private static void write(PulsarClient client, JsonNode task, Map<String, Producer<Object>> producers)
            throws Exception {
        JsonNode shape = task.get("schema");
        boolean batching = task.get("batching").asBoolean();
        String name = task.get("topic").asText() + batching + shape;
        Producer<Object> producer = producers.get(name);
        if (producer == null) {
            producer = client.newProducer(schema(shape)).topic(task.get("topic").asText()).enableBatching(batching)
                    .batchingMaxPublishDelay(1, TimeUnit.MINUTES).create();
            producers.put(name, producer);
        }
        for (JsonNode value : task.get("values")) {
            TypedMessageBuilder<Object> message = producer.newMessage().value(value(shape, value));
            if (batching) {
                message.sendAsync();
            } else {
                message.send();
            }
        }
        producer.flush();
    }

    private static void read(PulsarClient client, JsonNode task) throws Exception {
        String topic = task.get("topic").asText();
        var builder = client.newReader(schema(task.get("schema"))).topic(topic).startMessageId(MessageId.earliest);
        try (Reader<Object> reader = builder.create()) {
            while (reader.hasMessageAvailable()) {
                var message = reader.readNext(2, TimeUnit.MINUTES);
                ObjectNode node = JSON.createObjectNode();
                byte[] version = message.getSchemaVersion();
                node.put("topic", topic);
                node.put("version", version == null ? null : ByteBuffer.wrap(version).getLong());
                node.set("value", described(message.getValue()));
                OUT.println(JSON.writeValueAsString(node));
            }
        }
    }

    @SuppressWarnings("unchecked")
    private static Schema<Object> schema(JsonNode node) throws Exception {
        Schema<?> schema = switch (node.get("type").asText()) {
            case "STRING" -> node.has("charset")
                    ? new StringSchema(Charset.forName(node.get("charset").asText())) : Schema.STRING;
            case "BOOLEAN" -> Schema.BOOL;
            case "INT8" -> Schema.INT8;
            case "INT16" -> Schema.INT16;
            case "INT32" -> Schema.INT32;
            case "INT64" -> Schema.INT64;
            case "FLOAT" -> Schema.FLOAT;
            case "DOUBLE" -> Schema.DOUBLE;
            case "DATE" -> Schema.DATE;
            case "TIME" -> Schema.TIME;
            case "TIMESTAMP" -> Schema.TIMESTAMP;
            case "INSTANT" -> Schema.INSTANT;
            case "LOCAL_DATE" -> Schema.LOCAL_DATE;
            case "LOCAL_TIME" -> Schema.LOCAL_TIME;
            case "LOCAL_DATE_TIME" -> Schema.LOCAL_DATE_TIME;
            case "AUTO_CONSUME" -> Schema.AUTO_CONSUME();
            case "AVRO" -> node.has("definition") ? generic(node) : Schema.AVRO(definition(node));
            case "JSON" -> Schema.JSON(definition(node));
            case "PROTOBUF" -> Schema.PROTOBUF((Class<GeneratedMessageV3>) classOf(node));
            case "PROTOBUF_NATIVE" -> Schema.PROTOBUF_NATIVE((Class<GeneratedMessageV3>) classOf(node));
            case "KEY_VALUE" -> Schema.KeyValue(schema(node.get("key")), schema(node.get("value")),
                    KeyValueEncodingType.valueOf(node.get("encoding").asText()));
            default -> throw new IllegalArgumentException(node.toString());
        };
        return (Schema<Object>) schema;
    }

    private static Class<?> classOf(JsonNode node) throws ClassNotFoundException {
        return Class.forName(node.get("class").asText());
    }

    @SuppressWarnings("unchecked")
    private static SchemaDefinition<Object> definition(JsonNode node) throws ClassNotFoundException {
        return SchemaDefinition.builder().withPojo((Class<Object>) classOf(node)).build();
    }

    private static Schema<?> generic(JsonNode node) {
        byte[] definition = node.get("definition").asText().getBytes(StandardCharsets.UTF_8);
        return Schema.generic(SchemaInfo.builder().name("").type(SchemaType.AVRO).schema(definition)
                .properties(Map.of()).build());
    }

    /** A value of the schema. */
    private static Object value(JsonNode schema, JsonNode json) throws Exception {
        if (json == null || json.isNull()) {
            return null;
        }
        return switch (schema.get("type").asText()) {
            case "STRING" -> json.asText();
            case "BOOLEAN" -> json.asBoolean();
            case "INT8" -> (byte) json.asInt();
            case "INT16" -> (short) json.asInt();
            case "INT32" -> json.asInt();
            case "INT64" -> json.asLong();
            case "FLOAT" -> Float.parseFloat(json.asText());
            case "DOUBLE" -> Double.parseDouble(json.asText());
            case "DATE" -> new Date(milliseconds(json));
            case "TIME" -> new Time(milliseconds(json));
            case "TIMESTAMP" -> new Timestamp(milliseconds(json));
            case "INSTANT" -> instant(json.bigIntegerValue());
            case "LOCAL_DATE" -> LocalDate.ofEpochDay(json.asLong());
            case "LOCAL_TIME" -> LocalTime.ofNanoOfDay(json.asLong());
            case "LOCAL_DATE_TIME" -> localDateTime(json.bigIntegerValue());
            case "AVRO", "JSON" -> schema.has("definition") ? avroRecord(schema, json)
                    : JSON.treeToValue(json, classOf(schema));
            case "PROTOBUF", "PROTOBUF_NATIVE" -> message(schema, json);
            case "KEY_VALUE" -> new KeyValue<>(value(schema.get("key"), json.get("key")),
                    value(schema.get("value"), json.get("value")));
            default -> throw new IllegalArgumentException(schema.toString());
        };
    }

    private static Object avroRecord(JsonNode schema, JsonNode json) throws IOException {
        var avro = new org.apache.avro.Schema.Parser().parse(schema.get("definition").asText());
        var decoder = DecoderFactory.get().jsonDecoder(avro, JSON.writeValueAsString(json));
        var reader = new GenericDatumReader<org.apache.avro.generic.GenericRecord>(avro);
        return new GenericAvroRecord(null, avro, List.of(), reader.read(null, decoder));
    }

    private static Message message(JsonNode schema, JsonNode json) throws Exception {
        var builder = (Message.Builder) classOf(schema).getMethod("newBuilder").invoke(null);
        com.google.protobuf.util.JsonFormat.parser().merge(JSON.writeValueAsString(json), builder);
        return builder.build();
    }

    /** What a value says, in JSON; the reverse of value(). */
    private static JsonNode described(Object value) throws IOException {
        if (value instanceof GenericObject object) {
            return described(object.getNativeObject());
        } else if (value instanceof KeyValue<?, ?> pair) {
            ObjectNode node = JSON.createObjectNode();
            node.set("key", described(pair.getKey()));
            node.set("value", described(pair.getValue()));
            return node;
        } else if (value instanceof IndexedRecord record) {
            return described(record, record.getSchema());
        } else if (value instanceof Message message) {
            return JSON.readTree(com.google.protobuf.util.JsonFormat.printer().preservingProtoFieldNames().print(message));
        } else if (value instanceof JsonNode node) {
            return node;
        }
        return JSON.valueToTree(value);
    }

    /** A value as Avro holds it in memory; times in the units that the mapper has. */
    private static JsonNode described(Object value, org.apache.avro.Schema schema) {
        var nodes = JsonNodeFactory.instance;
        if (value instanceof IndexedRecord record) {
            ObjectNode node = nodes.objectNode();
            for (var field : record.getSchema().getFields()) {
                node.set(field.name(), described(record.get(field.pos()), field.schema()));
            }
            return node;
        } else if (schema.isUnion() && value != null) {
            int branch = GenericData.get().resolveUnion(schema, value);
            return described(value, schema.getTypes().get(branch));
        } else if (value instanceof List<?> items) {
            var node = nodes.arrayNode();
            items.forEach(item -> node.add(described(item, schema.getElementType())));
            return node;
        } else if (value instanceof Map<?, ?> entries) {
            ObjectNode node = nodes.objectNode();
            entries.forEach((key, item) -> node.set(key.toString(), described(item, schema.getValueType())));
            return node;
        } else if (value instanceof ByteBuffer || value instanceof GenericFixed) {
            byte[] bytes = value instanceof GenericFixed fixed ? fixed.bytes() : bytesOf((ByteBuffer) value);
            return schema.getLogicalType() instanceof LogicalTypes.Decimal type
                    ? nodes.textNode(new BigDecimal(new BigInteger(bytes), type.getScale()).toPlainString())
                    : nodes.binaryNode(bytes);
        } else if (value instanceof Number number && schema.getLogicalType() != null) {
            long unit = switch (schema.getLogicalType().getName()) {
                case "timestamp-millis", "local-timestamp-millis" -> 1_000_000;
                case "timestamp-micros", "local-timestamp-micros" -> 1_000;
                default -> 1;
            };
            return nodes.numberNode(BigInteger.valueOf(number.longValue()).multiply(BigInteger.valueOf(unit)));
        }
        boolean isText = value instanceof CharSequence || value instanceof GenericEnumSymbol<?>;
        return isText ? nodes.textNode(value.toString()) : JSON.valueToTree(value);
    }

    private static byte[] bytesOf(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    private static final BigInteger SECOND = BigInteger.valueOf(1_000_000_000);
    private static final BigInteger DAY = BigInteger.valueOf(86_400).multiply(SECOND);

    private static long milliseconds(JsonNode nanos) {
        return Math.floorDiv(nanos.asLong(), 1_000_000L);
    }

    private static Instant instant(BigInteger nanos) {
        BigInteger part = nanos.mod(SECOND);
        return Instant.ofEpochSecond(nanos.subtract(part).divide(SECOND).longValueExact(), part.longValueExact());
    }

    private static LocalDateTime localDateTime(BigInteger nanos) {
        BigInteger part = nanos.mod(DAY);
        LocalDate day = LocalDate.ofEpochDay(nanos.subtract(part).divide(DAY).longValueExact());
        return LocalDateTime.of(day, LocalTime.ofNanoOfDay(part.longValueExact()));
    }

    /** JSON between Python and this program: times in ns since 1970, days since 1970, decimals as texts. */
    private static ObjectMapper mapper() {
        var module = new SimpleModule();
        add(module, Instant.class, value -> BigInteger.valueOf(value.getEpochSecond()).multiply(SECOND)
                .add(BigInteger.valueOf(value.getNano())), node -> instant(node.bigIntegerValue()));
        add(module, LocalDate.class, value -> BigInteger.valueOf(value.toEpochDay()),
                node -> LocalDate.ofEpochDay(node.asLong()));
        add(module, LocalTime.class, value -> BigInteger.valueOf(value.toNanoOfDay()),
                node -> LocalTime.ofNanoOfDay(node.asLong()));
        add(module, LocalDateTime.class, value -> BigInteger.valueOf(value.toLocalDate().toEpochDay()).multiply(DAY)
                .add(BigInteger.valueOf(value.toLocalTime().toNanoOfDay())),
                node -> localDateTime(node.bigIntegerValue()));
        for (Class<? extends Date> type : List.of(Date.class, Time.class, Timestamp.class)) {
            module.addSerializer(type, serializer(
                    value -> BigInteger.valueOf(value.getTime()).multiply(BigInteger.valueOf(1_000_000))));
        }
        for (Class<Float> type : List.of(Float.class, Float.TYPE)) {
            module.addSerializer(type, new JsonSerializer<Float>() {
                @Override
                public void serialize(Float value, JsonGenerator generator, SerializerProvider provider)
                        throws IOException {
                    generator.writeNumber(value.doubleValue()); // the same number, and not the shortest text of a float
                }
            });
        }
        var mapper = new ObjectMapper().registerModule(module);
        mapper.configOverride(BigDecimal.class).setFormat(JsonFormat.Value.forShape(JsonFormat.Shape.STRING));
        return mapper;
    }

    private static <T> void add(SimpleModule module, Class<T> type, Function<T, BigInteger> number,
            Function<JsonNode, T> value) {
        module.addSerializer(type, serializer(number));
        module.addDeserializer(type, new JsonDeserializer<T>() {
            @Override
            public T deserialize(JsonParser parser, DeserializationContext context) throws IOException {
                return value.apply(parser.readValueAsTree());
            }
        });
    }

    private static <T> JsonSerializer<T> serializer(Function<T, BigInteger> number) {
        return new JsonSerializer<T>() {
            @Override
            public void serialize(T value, JsonGenerator generator, SerializerProvider provider) throws IOException {
                generator.writeNumber(number.apply(value));
            }
        };
    }
}
