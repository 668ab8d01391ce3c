import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.IntNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.Period;
import java.time.Year;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.util.Calendar;
import java.util.Collection;
import java.util.Date;
import java.util.GregorianCalendar;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TimeZone;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.avro.reflect.AvroDefault;
import org.apache.avro.reflect.AvroSchema;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;

/**
 * The Java client with classes that have a field of each kind; integration/helpers/java_kinds.py runs it.
 *
 * <p>Arguments: the URL of the broker. For each line of the input:
 *
 * <pre>
 * write KIND TOPIC    registers the schema of Nothing, then that of the kind's class; writes a Nothing, a value in
 *                     which each field has one, one in which each is null or zero, one of extremes, and a Nothing
 * register KIND TOPIC registers the two schemas
 * read KIND TOPIC     gives one line: a list of the topic's values as the kind's class, as describe() has them
 * </pre>
 *
 * <p>KIND is AVRO or JSON. Both commands that write give an empty line.
 */
public class KindsPeer {
    public enum Color { RED, GREEN }

    public static class Part {
        public String name;
        public Integer number;
    }

    /** What an older version has. */
    public static class Nothing {
        @AvroDefault("0") public int id;
    }

    /** Fields that both AVRO and JSON can say. */
    public static class Kinds {
        @AvroDefault("0") public int id;
        @AvroDefault("true") public boolean primitiveBoolean;
        @AvroDefault("7") public byte primitiveByte;
        @AvroDefault("7") public short primitiveShort;
        @AvroDefault("99") public char primitiveChar;
        @AvroDefault("7") public int primitiveInt;
        @AvroDefault("7") public long primitiveLong;
        @AvroDefault("1.5") public float primitiveFloat;
        @AvroDefault("1.5") public double primitiveDouble;
        public Boolean boxedBoolean;
        public Byte boxedByte;
        public Short boxedShort;
        public Character boxedChar;
        public Integer boxedInt;
        public Long boxedLong;
        public Float boxedFloat;
        public Double boxedDouble;
        public String text;
        public CharSequence sequence;
        public byte[] bytes;
        public ByteBuffer buffer;
        public Color color;
        public BigDecimal bigDecimal;
        public BigInteger bigInteger;
        @AvroSchema("{\"type\":\"bytes\",\"logicalType\":\"decimal\",\"precision\":12,\"scale\":2}")
        public BigDecimal price;
        @AvroSchema("{\"type\":\"bytes\",\"logicalType\":\"decimal\",\"precision\":50,\"scale\":2}")
        public BigDecimal wide;
        public UUID uuid;
        public URI uri;
        public Instant instant;
        public LocalDate localDate;
        public LocalTime localTime;
        public LocalDateTime localDateTime;
        public Part part;
        public List<String> strings;
        public Set<Long> longs;
        public Collection<Part> parts;
        public int[] ints;
        public double[] doubles;
        public char[] chars;
        public String[] stringArray;
        public List<Character> characters;
        public List<List<Integer>> lists;
        public List<Map<String, Integer>> listOfMaps;
        public Map<String, Integer> byText;
        public Map<String, Part> partsByText;
        public Map<String, List<Integer>> listsByText;
        public Map<Integer, String> byInteger;
        public Map<Long, Part> partsByLong;
        public Map<Color, Integer> byColor;
        public Map<UUID, Integer> byUuid;
    }

    /** Also those that only JSON can say, whose schemas have nothing of their values. */
    public static class JsonKinds extends Kinds {
        public Date date;
        public java.sql.Timestamp timestamp;
        public java.sql.Date sqlDate;
        public java.sql.Time sqlTime;
        public Calendar calendar;
        public OffsetDateTime offsetDateTime;
        public ZonedDateTime zonedDateTime;
        public Duration duration;
        public Period period;
        public Year year;
        public AtomicInteger atomic;
        public JsonNode node;
        public Object object;
        public List<Date> dates;
        public Map<String, Object> objects;
        public JsonKinds next;
        public List<JsonKinds> kids;
        @AvroDefault("0") public int casE;
        @AvroDefault("0") public int cAsE;
    }

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final BigInteger SECOND = BigInteger.valueOf(1_000_000_000);

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // for the client's log
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] words = line.split(" ");
                Class<? extends Kinds> type = words[1].equals("JSON") ? JsonKinds.class : Kinds.class;
                switch (words[0]) {
                    case "write" -> out.println(write(client, words[1], type, words[2], true));
                    case "register" -> out.println(write(client, words[1], type, words[2], false));
                    case "read" -> out.println(JSON.writeValueAsString(read(client, words[1], type, words[2])));
                    default -> throw new IllegalArgumentException(line);
                }
            }
        }
    }

    private static <T> Schema<T> schema(String kind, Class<T> type) {
        return kind.equals("JSON") ? Schema.JSON(type) : Schema.AVRO(type);
    }

    private static <T extends Kinds> String write(
            PulsarClient client, String kind, Class<T> type, String topic, boolean withValues) throws Exception {
        try (Producer<Nothing> older = client.newProducer(schema(kind, Nothing.class)).topic(topic).create();
                Producer<T> newer = client.newProducer(schema(kind, type)).topic(topic).create()) {
            if (withValues) {
                older.send(new Nothing());
                newer.send(type.cast(filled(type.getDeclaredConstructor().newInstance())));
                newer.send(type.getDeclaredConstructor().newInstance());
                newer.send(type.cast(extreme(type.getDeclaredConstructor().newInstance())));
                older.send(new Nothing());
            }
        }
        return "";
    }

    private static <T> ArrayNode read(PulsarClient client, String kind, Class<T> type, String topic)
            throws Exception {
        ArrayNode values = NODES.arrayNode();
        var builder = client.newReader(schema(kind, type)).topic(topic).startMessageId(MessageId.earliest);
        try (Reader<T> reader = builder.create()) {
            while (reader.hasMessageAvailable()) {
                values.add(describe(reader.readNext(2, TimeUnit.MINUTES).getValue()));
            }
        }
        return values;
    }

    private static Part part(String name, Integer number) {
        Part part = new Part();
        part.name = name;
        part.number = number;
        return part;
    }

    private static Kinds filled(Kinds kinds) {
        kinds.id = 1;
        kinds.primitiveBoolean = true;
        kinds.primitiveByte = -5;
        kinds.primitiveShort = -300;
        kinds.primitiveChar = 'x';
        kinds.primitiveInt = 70_000;
        kinds.primitiveLong = 1L << 40;
        kinds.primitiveFloat = 1.1f;
        kinds.primitiveDouble = 0.1;
        kinds.boxedBoolean = false;
        kinds.boxedByte = 5;
        kinds.boxedShort = 300;
        kinds.boxedChar = 'é';
        kinds.boxedInt = -70_000;
        kinds.boxedLong = -(1L << 40);
        kinds.boxedFloat = 2.5f;
        kinds.boxedDouble = 1e100;
        kinds.text = "text \"é\"";
        kinds.sequence = "sequence";
        kinds.bytes = new byte[] {0, -1};
        kinds.buffer = ByteBuffer.wrap(new byte[] {1, 2, 3});
        kinds.color = Color.GREEN;
        kinds.bigDecimal = new BigDecimal("12.50");
        kinds.bigInteger = new BigInteger("123456789012345678901234567890");
        kinds.price = new BigDecimal("-12.50");
        kinds.wide = new BigDecimal("123456789012345678901234567890123456789012345678.50");
        kinds.uuid = new UUID(1, 2);
        kinds.uri = URI.create("http://a/b");
        kinds.instant = Instant.ofEpochSecond(1_700_000_000L, 123_456_000);
        kinds.localDate = LocalDate.of(2023, 11, 14);
        kinds.localTime = LocalTime.of(10, 11, 12, 13_000_000);
        kinds.localDateTime = LocalDateTime.of(2023, 11, 14, 10, 11, 12, 13_000_000);
        kinds.part = part("p", 1);
        kinds.strings = List.of("a", "");
        kinds.longs = Set.of(5L);
        kinds.parts = List.of(part("q", null), part(null, 2));
        kinds.ints = new int[] {1, 2};
        kinds.doubles = new double[] {0.5};
        kinds.chars = new char[] {'a', 'b'};
        kinds.stringArray = new String[] {"s"};
        kinds.characters = List.of('c', 'd');
        kinds.lists = List.of(List.of(1, 2), List.of());
        kinds.listOfMaps = List.of(Map.of("a", 1));
        kinds.byText = Map.of("a", 1);
        kinds.partsByText = Map.of("a", part("r", 3));
        kinds.listsByText = Map.of("a", List.of(1));
        kinds.byInteger = Map.of(7, "x");
        kinds.partsByLong = Map.of(7L, part("s", 4));
        kinds.byColor = Map.of(Color.RED, 1);
        kinds.byUuid = Map.of(new UUID(3, 4), 1);
        return kinds instanceof JsonKinds json ? filledJson(json) : kinds;
    }

    private static JsonKinds filledJson(JsonKinds kinds) {
        kinds.date = new Date(1_700_000_000_123L);
        kinds.timestamp = new java.sql.Timestamp(1_700_000_000_123L);
        kinds.sqlDate = new java.sql.Date(1_699_920_000_000L);
        kinds.sqlTime = java.sql.Time.valueOf("22:13:20");
        kinds.calendar = new GregorianCalendar(2020, 1, 1, 2, 3, 4);
        kinds.offsetDateTime = OffsetDateTime.of(2023, 11, 14, 10, 11, 12, 13_000, ZoneOffset.ofHours(2));
        kinds.zonedDateTime = ZonedDateTime.of(2023, 11, 14, 10, 11, 12, 13_000, ZoneId.of("Europe/Paris"));
        kinds.duration = Duration.ofMillis(1500);
        kinds.period = Period.ofDays(3);
        kinds.year = Year.of(2020);
        kinds.atomic = new AtomicInteger(5);
        kinds.node = IntNode.valueOf(5);
        kinds.object = Map.of("a", List.of(1, "é"));
        kinds.dates = List.of(new Date(5));
        kinds.objects = Map.of("a", 1.5);
        kinds.next = new JsonKinds();
        kinds.next.text = "next";
        kinds.next.next = new JsonKinds();
        kinds.kids = List.of(new JsonKinds());
        kinds.casE = 1;
        kinds.cAsE = 2;
        return kinds;
    }

    private static Kinds extreme(Kinds kinds) {
        kinds.primitiveChar = '\0';
        kinds.primitiveLong = Long.MIN_VALUE;
        kinds.primitiveFloat = Float.MIN_VALUE;
        kinds.primitiveDouble = -0.0;
        kinds.boxedLong = Long.MAX_VALUE;
        kinds.boxedChar = '\uffff';
        kinds.boxedFloat = Float.MAX_VALUE;
        kinds.boxedDouble = Double.MIN_VALUE;
        kinds.text = "\u0000\n\ud83d\ude00";
        kinds.bytes = new byte[0];
        kinds.bigDecimal = new BigDecimal("1E+30");
        kinds.price = new BigDecimal("0.00");
        kinds.wide = new BigDecimal("-0.01");
        kinds.instant = Instant.ofEpochSecond(-1, 250_000_001);
        kinds.localDate = LocalDate.of(1, 1, 1);
        kinds.localTime = LocalTime.of(23, 59, 59, 999_999_999);
        kinds.localDateTime = LocalDateTime.of(1969, 12, 31, 23, 59);
        kinds.strings = List.of();
        kinds.ints = new int[0];
        kinds.chars = new char[0];
        kinds.byText = Map.of();
        if (kinds instanceof JsonKinds json) {
            json.date = new Date(-1);
            json.offsetDateTime = OffsetDateTime.of(1969, 12, 31, 23, 59, 59, 250_000_000, ZoneOffset.UTC);
            json.duration = Duration.ofSeconds(-1);
            json.object = "text";
            json.kids = List.of();
            json.byInteger = Map.of(); // Avro takes an empty map for one by texts
        }
        return kinds;
    }

    /** A value without its class: times in ns, days and decimals as TypedPeer has them, maps by texts. */
    private static JsonNode describe(Object value) throws Exception {
        if (value == null) {
            return NODES.nullNode();
        } else if (value instanceof Float number) {
            return NODES.numberNode(number.doubleValue());
        } else if (value instanceof BigDecimal || value instanceof BigInteger || value instanceof UUID
                || value instanceof URI || value instanceof CharSequence || value instanceof Character
                || value instanceof Enum<?> || value instanceof java.sql.Time) {
            return NODES.textNode(value.toString());
        } else if (value instanceof byte[] bytes) {
            return NODES.binaryNode(bytes);
        } else if (value instanceof ByteBuffer buffer) {
            byte[] bytes = new byte[buffer.remaining()];
            buffer.duplicate().get(bytes);
            return NODES.binaryNode(bytes);
        } else if (value instanceof Calendar calendar) {
            return describe(calendar.getTime());
        } else if (value instanceof Date date) {
            return NODES.numberNode(BigInteger.valueOf(date.getTime()).multiply(BigInteger.valueOf(1_000_000)));
        } else if (value instanceof OffsetDateTime time) {
            return describe(time.toInstant());
        } else if (value instanceof ZonedDateTime time) {
            return describe(time.toInstant());
        } else if (value instanceof Instant time) {
            return NODES.numberNode(BigInteger.valueOf(time.getEpochSecond()).multiply(SECOND)
                    .add(BigInteger.valueOf(time.getNano())));
        } else if (value instanceof LocalDate day) {
            return NODES.numberNode(day.toEpochDay());
        } else if (value instanceof LocalTime time) {
            return NODES.numberNode(time.toNanoOfDay());
        } else if (value instanceof LocalDateTime time) {
            return describe(time.toInstant(ZoneOffset.UTC));
        } else if (value instanceof Duration || value instanceof Period || value instanceof Year) {
            return NODES.textNode(value.toString());
        } else if (value instanceof JsonNode node) {
            return node;
        } else if (value instanceof Collection<?> items) {
            return described(items.toArray());
        } else if (value.getClass().isArray()) {
            return described(value);
        } else if (value instanceof Map<?, ?> map) {
            ObjectNode node = NODES.objectNode();
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                node.set(entry.getKey().toString(), describe(entry.getValue()));
            }
            return node;
        } else if (value instanceof Kinds || value instanceof Part) {
            ObjectNode node = NODES.objectNode();
            for (Field field : value.getClass().getFields()) {
                node.set(field.getName(), describe(field.get(value)));
            }
            return node;
        }
        return JSON.valueToTree(value);
    }

    private static ArrayNode described(Object array) throws Exception {
        ArrayNode node = NODES.arrayNode();
        for (int i = 0; i < Array.getLength(array); i++) {
            node.add(describe(Array.get(array, i)));
        }
        return node;
    }
}
