import com.fasterxml.jackson.databind.ObjectMapper;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Random values of all types of Kafka Connect, as its JsonConverter writes them.
 *
 * <p>{@code ConnectPeer SEED COUNT FORMAT} prints lines of JSON: the payload in base64, and the fields as plain values.
 * FORMAT is the converter's decimal.format. Plain: numbers and decimals are their text, bytes are base64, dates are
 * days, times and timestamps milliseconds, maps lists of pairs.
 */
public class ConnectPeer {
    private static final int SCALE = 4;
    private static final long DAY = 86_400_000L;
    private static final String[] TEXTS = {"", "tea", "\"\\\n\u0001", "\u00e9\u20ac", "\ud83d\ude00", "1234", "null", "MDAw"};
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private final Random random;

    private ConnectPeer(long seed) {
        random = new Random(seed);
    }

    /** A value for Connect, and its plain form. */
    private record Pair(Object value, Object plain) {}

    public static void main(String[] arguments) throws Exception {
        ConnectPeer peer = new ConnectPeer(Long.parseLong(arguments[0]));
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false", "decimal.format", arguments[2]), false);
        Schema schema = row();
        for (int i = Integer.parseInt(arguments[1]); i > 0; i--) {
            Pair pair = peer.valueOf(schema);
            byte[] payload = converter.fromConnectData("topic", schema, pair.value());
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("payload", Base64.getEncoder().encodeToString(payload));
            line.put("row", pair.plain());
            System.out.println(MAPPER.writeValueAsString(line));
        }
    }

    private static Schema row() {
        Schema inner = SchemaBuilder.struct().optional()
                .field("price", Decimal.builder(SCALE).optional().build())
                .field("names", SchemaBuilder.array(Schema.OPTIONAL_STRING_SCHEMA).optional().build()).build();
        return SchemaBuilder.struct()
                .field("int8", Schema.INT8_SCHEMA).field("int16", Schema.OPTIONAL_INT16_SCHEMA)
                .field("int32", Schema.OPTIONAL_INT32_SCHEMA).field("int64", Schema.INT64_SCHEMA)
                .field("float32", Schema.OPTIONAL_FLOAT32_SCHEMA).field("float64", Schema.FLOAT64_SCHEMA)
                .field("boolean", Schema.OPTIONAL_BOOLEAN_SCHEMA).field("string", Schema.OPTIONAL_STRING_SCHEMA)
                .field("bytes", Schema.OPTIONAL_BYTES_SCHEMA)
                .field("decimal", Decimal.builder(SCALE).optional().build())
                .field("wide", Decimal.builder(SCALE).optional().build())
                .field("date", org.apache.kafka.connect.data.Date.builder().optional().build())
                .field("time", Time.builder().optional().build())
                .field("timestamp", Timestamp.builder().optional().build())
                .field("array", SchemaBuilder.array(Decimal.builder(SCALE).optional().build()).optional().build())
                .field("map", SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.OPTIONAL_INT64_SCHEMA).optional().build())
                .field("pairs", SchemaBuilder.map(Schema.INT32_SCHEMA, inner).optional().build())
                .field("struct", inner).build();
    }

    private Pair valueOf(Schema schema) {
        if (schema.isOptional() && random.nextInt(5) == 0) {
            return new Pair(null, null);
        }
        String logical = schema.name() == null ? "" : schema.name();
        if (logical.equals(Decimal.LOGICAL_NAME)) {
            BigDecimal number = new BigDecimal(new BigInteger(random.nextInt(64), random), SCALE);
            number = random.nextBoolean() ? number : number.negate();
            return new Pair(number, number.toPlainString());
        }
        if (logical.equals(org.apache.kafka.connect.data.Date.LOGICAL_NAME)) {
            long days = random.nextInt(80_000) - 40_000;
            return new Pair(new Date(days * DAY), days);
        }
        if (logical.equals(Time.LOGICAL_NAME)) {
            long millis = random.nextInt((int) DAY);
            return new Pair(new Date(millis), millis);
        }
        if (logical.equals(Timestamp.LOGICAL_NAME)) {
            long millis = random.nextLong() >> 20;
            return new Pair(new Date(millis), millis);
        }
        return plainType(schema);
    }

    private Pair plainType(Schema schema) {
        long bits = random.nextLong() >> random.nextInt(64);
        switch (schema.type()) {
            case INT8:
                return number((byte) bits);
            case INT16:
                return number((short) bits);
            case INT32:
                return number((int) bits);
            case INT64:
                return number(bits);
            case FLOAT32:
                return number(random.nextBoolean() ? Float.intBitsToFloat(random.nextInt()) : (float) bits);
            case FLOAT64:
                return number(random.nextBoolean() ? Double.longBitsToDouble(random.nextLong()) : (double) bits);
            case BOOLEAN:
                boolean flag = random.nextBoolean();
                return new Pair(flag, flag);
            case STRING:
                String text = TEXTS[random.nextInt(TEXTS.length)];
                return new Pair(text, text);
            case BYTES:
                byte[] bytes = new byte[random.nextInt(9)];
                random.nextBytes(bytes);
                return new Pair(bytes, Base64.getEncoder().encodeToString(bytes));
            default:
                return container(schema);
        }
    }

    private static Pair number(Number number) {
        return new Pair(number, number.toString());
    }

    private Pair container(Schema schema) {
        List<Object> plain = new ArrayList<>();
        switch (schema.type()) {
            case ARRAY:
                List<Object> items = new ArrayList<>();
                for (int i = random.nextInt(4); i > 0; i--) {
                    Pair item = valueOf(schema.valueSchema());
                    items.add(item.value());
                    plain.add(item.plain());
                }
                return new Pair(items, plain);
            case MAP:
                Map<Object, Object> map = new HashMap<>();
                for (int i = random.nextInt(4); i > 0; i--) {
                    Pair key = valueOf(schema.keySchema());
                    Pair value = valueOf(schema.valueSchema());
                    if (!map.containsKey(key.value())) {
                        map.put(key.value(), value.value());
                        plain.add(Arrays.asList(key.plain(), value.plain()));
                    }
                }
                return new Pair(map, plain);
            default:
                Struct struct = new Struct(schema);
                Map<String, Object> fields = new LinkedHashMap<>();
                schema.fields().forEach(field -> {
                    Pair value = valueOf(field.schema());
                    struct.put(field, value.value());
                    fields.put(field.name(), value.plain());
                });
                return new Pair(struct, fields);
        }
    }
}
