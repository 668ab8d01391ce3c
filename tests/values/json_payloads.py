"""Random schemas, payloads as clients write them, and hostile ones; and a second reader, by json.loads."""

import base64
import json
import random
import re
from datetime import date, datetime, timedelta, timezone
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation, localcontext

import numpy as np
import pyarrow as pa

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.json.objects import ObjectReader
from pulsar_spark.values.json.tree import make_tree
from pulsar_spark.values.json_types import column_type

JAVA = {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}
LEAVES = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "bytes",
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
)
TEXTS = (
    "",
    "a",
    "plain text",
    "schön",
    "𝄞 clef",
    'quo"te',
    "back\\slash",
    "line\nbreak",
    '},{"n":5,"r":{',
    "null",
    "\x7f",
)


def json_schema(tree, properties=None):
    """A schema of type JSON."""
    return Schema(SchemaType.JSON, json.dumps(tree).encode(), JAVA if properties is None else properties)


def read_objects(node, payloads):
    return ObjectReader(node).read(pa.array(payloads, pa.binary()))


def tree_of(avro, properties=None):
    """How values of a schema are read into its own columns."""
    schema = json_schema(avro, properties)
    return make_tree(schema, schema, column_type(schema))


def record(name="R", **types):
    return {"type": "record", "name": name, "fields": [{"name": k, "type": t} for k, t in types.items()]}


class Maker:
    """Makes schemas and payloads of them; the same seed gives the same."""

    def __init__(self, seed, has_unions=True):
        self.random = random.Random(seed)
        self._has_unions = has_unions
        self._names = 0
        self.space = self.random.choice(("", "", " ", "\n  "))
        self.leaves_nulls_out = self.random.random() < 0.5
        self.order = self.random.choice(("schema", "reversed", "any"))
        self.has_unknown = self.random.random() < 0.3

    def record(self, depth=2):
        """The tree of a record's schema."""
        self._names += 1
        name = f"R{self._names}"
        count = self.random.randint(1, 6)
        fields = [{"name": f"f{i}", "type": self.type(depth)} for i in range(count)]
        return {"type": "record", "name": name, "fields": fields}

    def type(self, depth):
        """The tree of any type."""
        roll = self.random.random()
        if depth and roll < 0.12:
            return {"type": "array", "items": self.type(depth - 1)}
        if depth and roll < 0.2:
            return {"type": "map", "values": self.type(depth - 1)}
        if depth and roll < 0.32:
            return self.record(depth - 1)
        if roll < 0.36:
            self._names += 1
            return {"type": "enum", "name": f"E{self._names}", "symbols": ["RED", "GREEN"]}
        if roll < 0.4:
            self._names += 1
            return {"type": "fixed", "name": f"F{self._names}", "size": 3}
        if self._has_unions and roll < 0.44:
            return ["null", "string", "long", "boolean"]
        leaf = self.random.choice(LEAVES)
        return ["null", leaf] if self.random.random() < 0.4 else leaf

    def payload(self, tree):
        """A payload of the schema."""
        return self.text(tree).encode()

    def text(self, tree, is_usual=None):
        """The JSON of a value."""
        pick = self.random
        if is_usual is None:
            is_usual = pick.random() < 0.97
        if isinstance(tree, list):
            if tree[0] == "null" and pick.random() < 0.3:
                return "null"
            return self.text(pick.choice(tree[1:]))
        if not is_usual and pick.random() < 0.1:
            return "null"
        kind = tree if isinstance(tree, str) else tree.get("logicalType", tree["type"])
        if kind == "record":
            return self._object(tree)
        if kind == "array":
            return self._joined("[]", [self.text(tree["items"]) for _ in range(self._count())])
        if kind == "map":
            names = pick.sample(("a", "b", "k é", 'k"', ""), self._count() % 5)
            return self._joined("{}", [self._member(name, self.text(tree["values"])) for name in names])
        if kind == "fixed":
            return json.dumps(base64.b64encode(pick.randbytes(3)).decode())
        if kind == "enum":
            return pick.choice(('"RED"', '"GREEN"')) if is_usual else "2"
        return getattr(self, "_" + kind.replace("-", "_"))(is_usual)

    def _count(self):
        return self.random.choice((0, 0, 1, 1, 2, 3, 5)) if self.random.random() < 0.99 else 70

    def _object(self, tree):
        members = []
        for field in tree["fields"]:
            value = self.text(field["type"])
            if not (value == "null" and self.leaves_nulls_out):
                members.append(self._member(field["name"], value))
        if self.order == "reversed":
            members.reverse()
        if self.order == "any" and self.random.random() < 0.05:
            self.random.shuffle(members)
        if self.has_unknown:
            unknown = self.random.choice(
                ('"x"', "1.5e3", "true", "null", '{"a":[1,{"b":"\\u00e9"}]}', "[[],[2]]")
            )
            members.insert(self.random.choice((0, len(members))), self._member("more", unknown))
        return self._joined("{}", members)

    def _member(self, name, value):
        return json.dumps(name, ensure_ascii=False) + self._gap() + ":" + self._gap() + value

    def _joined(self, around, parts):
        gap = self._gap()
        return around[0] + gap + f"{gap},{gap}".join(parts) + gap + around[1]

    def _gap(self):
        return self.space

    def _boolean(self, _is_usual):
        return self.random.choice(("true", "false"))

    def _int(self, is_usual):
        pick = self.random
        number = pick.choice((0, 1, -1, 2**31 - 1, -(2**31), pick.randrange(-(10**9), 10**9)))
        return (
            str(number)
            if is_usual
            else pick.choice((f"{number}.0", f'"{number}"', "5e2", "-0", "2147483648"))
        )

    def _long(self, is_usual):
        pick = self.random
        number = pick.choice((0, 10**17, -(10**18) + 1, pick.randrange(-(10**17), 10**17)))
        odd = (f'"{number}"', "1.5e1", str(2**63), str(-(2**63)), str(pick.randrange(2**63)))
        return str(number) if is_usual else pick.choice(odd)

    def _float(self, is_usual):
        return self._double(is_usual)

    def _double(self, is_usual):
        pick = self.random
        number = pick.choice(
            (0.0, -0.0, 1.5, -2.25, pick.uniform(-1e6, 1e6), pick.uniform(-1, 1) * 1e-7, 1e22)
        )
        odd = (
            f'"{number}"',
            "NaN",
            "-Infinity",
            '"NaN"',
            "1e400",
            "1e39",
            "12345678901234567890123456789",
            "-0",
            "1E+5",
        )
        return repr(number) if is_usual else pick.choice(odd)

    def _string(self, is_usual):
        pick = self.random
        text = pick.choice(TEXTS)
        odd = ("12.30", "1e5", "007", '"\\ud800"', '"\\ud834\\udd1e"', "-0")
        return json.dumps(text, ensure_ascii=pick.random() < 0.3) if is_usual else pick.choice(odd)

    def _bytes(self, is_usual):
        pick = self.random
        data = pick.randbytes(pick.randrange(6))
        return (
            json.dumps(base64.b64encode(data).decode())
            if is_usual
            else pick.choice(('"no base64"', '"YQ"', '"YR=="', "5"))
        )

    def _date(self, is_usual):
        pick = self.random
        day = date(1970, 1, 1) + timedelta(days=pick.randrange(-100_000, 100_000))
        array = self._joined("[]", [str(day.year), str(day.month), str(day.day)])
        odd = (f'"{day}"', "[2023,2,29]", "[2023,13,1]", "[2023,1]", "[0,1,1]", '"12"', "[-5,1,1]", "1e3")
        return pick.choice((array, str(pick.randrange(-(10**5), 10**5)))) if is_usual else pick.choice(odd)

    def _timestamp_millis(self, is_usual):
        pick = self.random
        seconds = pick.randrange(-(10**10), 10**10)
        if is_usual and pick.random() < 0.2:
            fraction = pick.choice(("", ".5", ".123456", ".000000001"))
            return f'"{pick.randrange(1, 10**4):04}-02-{pick.randrange(1, 29):02}T23:59:59{fraction}"'
        if is_usual:
            return pick.choice((f"{seconds}.{pick.randrange(10**9):09}", str(seconds * 1000), f"{seconds}.5"))
        moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(
            seconds=seconds, microseconds=pick.randrange(10**6)
        )
        odd = (
            f'"{moment.isoformat()}"',
            f'"{moment.isoformat()[:19]}Z"',
            "1.5e9",
            "-0.0000001",
            "1" * 19,
            '"x"',
            "1e-400",
        )
        return pick.choice(odd)

    _timestamp_micros = _timestamp_millis

    def _local_timestamp_micros(self, is_usual):
        return (
            self._timestamp_millis(is_usual)
            if is_usual
            else self.random.choice(("[2023,1,2,3,4]", "[1,2,3,4,5,6,7]", "[1]"))
        )

    def _decimal(self, is_usual):
        pick = self.random
        if is_usual:
            return f"{pick.randrange(-(10**9), 10**9)}.{pick.randrange(100):02}"
        return pick.choice(('"12.30"', "1e2", "1.000", "0.001", "1" * 30, "-0.00", "12345678901.1", "0.5"))


def broken(pick, payload, other):
    """A payload that somebody has damaged, or made to do damage."""
    at = pick.randrange(len(payload) + 1)
    return pick.choice(
        (
            lambda: payload[:at],
            lambda: payload[at:],
            lambda: payload[:at] + bytes([pick.randrange(256)]) + payload[at + 1 :],
            lambda: payload[:at] + pick.choice(HOSTILE) + payload[at:],
            lambda: payload + other,
            lambda: payload + pick.choice(HOSTILE),
            lambda: pick.choice(HOSTILE) + payload,
            lambda: payload[:at] + payload[at + 1 :],
            lambda: payload.replace(b'"f0"', b'"f1"'),
            lambda: pick.choice(HOSTILE),
            lambda: payload.replace(b",", pick.choice((b",,", b":", b" ")), 1),
        )
    )()


HOSTILE = (
    *(b"", b"\0", b"\xef\xbb\xbf", b"\n", b"{}", b"[]", b'},{"n":5,"r":{', b'"', b"\\", b'\\"', b"{"),
    *(b"}", b"[" * 10_000, b"[" * 2_000 + b"]" * 2_000, b'{"f0":' * 5_000, b"1e999999", b"9" * 5_000),
    *(b"-", b"0x10", b"01", b"1.", b".5", b"+1", b"1_000", b"\\ud800", b'"\\ud800"', b"\xff"),
    *(b"\xed\xa0\x80", b"\xc3", b"\x1f", b"/*x*/", b",", b":", b"nul", b"nulll", b"truefalse"),
    *(b'"f0":1,', b'{"f0":1,"f0":2}', b"NaN", b"\xe2\x80\xa8", b"\xc2\xa0"),
)


class Digits(str):
    """A number of a payload, as it is written."""


class ModelError(Exception):
    """The second reader finds a payload bad."""


class UnknownError(Exception):
    """The second reader cannot tell."""


def model(tree, payload):
    """Read a payload with json.loads, by the rules of the table in ``objects``.

    Raises:
        ModelError: it is bad.
        UnknownError: it is beyond json.loads or Decimal: too deep, or an exponent of too many digits.
    """
    try:
        text = payload.decode("utf-8-sig")
        value = json.loads(
            text, parse_int=Digits, parse_float=Digits, parse_constant=Digits, object_pairs_hook=tuple
        )
    except ValueError:
        raise ModelError from None
    except RecursionError:
        raise UnknownError from None
    with localcontext(Context(prec=12_000, Emax=MAX_EMAX, Emin=MIN_EMIN)):
        return _value(tree, value)


def _value(tree, value):
    if value is None:
        return None
    if isinstance(tree, list):
        return _union([each for each in tree if each != "null"], value)
    kind = tree if isinstance(tree, str) else tree.get("logicalType", tree["type"])
    if kind == "record":
        _require(isinstance(value, tuple))
        fields = {field["name"]: field["type"] for field in tree["fields"]}
        found = dict(value)
        return {name: _value(each, found.get(name)) for name, each in fields.items()}
    if kind == "array":
        _require(isinstance(value, list))
        return [_value(tree["items"], each) for each in value]
    if kind == "map":
        _require(isinstance(value, tuple))
        return [(_text(name), _value(tree["values"], each)) for name, each in dict(value).items()]
    if kind == "enum":
        _require(type(value) is not str or value in tree["symbols"])
    if kind in ("string", "enum"):
        _require((isinstance(value, str) and value not in NOT_FINITE) or type(value) is str)
        return _text(str(value))
    if kind == "boolean":
        _require(str(value).lower() in ("true", "false", "1", "0"))
        return str(value).lower() in ("true", "1")
    if kind in ("bytes", "fixed"):
        _require(type(value) is str)
        try:
            data = base64.b64decode(value, validate=True)
        except ValueError:
            raise ModelError from None
        _require(kind == "bytes" or len(data) == tree["size"])
        return data
    return _number(kind, tree, value)


def _union(members, value):
    """The first member that reads a value of JSON without parts, of those whose form it has, then of all."""
    if len(members) == 1:
        return _value(members[0], value)

    def looks_other(number):
        form = {"string": str, "boolean": bool}.get(members[number], Digits)
        return type(value) is not form

    for number in sorted(range(len(members)), key=looks_other):
        try:
            found = _value(members[number], value)
        except ModelError:
            continue
        return dict.fromkeys(f"member{each}" for each in range(len(members))) | {f"member{number}": found}
    raise ModelError


NOT_FINITE = ("NaN", "Infinity", "-Infinity")


def _require(holds):
    if not holds:
        raise ModelError


def _text(text):
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ModelError from None
    return text


def _within(number, bits):
    _require(-(1 << bits) <= number < 1 << bits)
    return number


def _moment(text):
    """A time in ISO 8601; Python's reader takes fractions of 6 digits alone, before 3.11."""
    found = re.fullmatch(r"([-0-9]{10}T[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.([0-9]{1,9}))?(Z|[-+].+)?", text)
    _require(found is not None)
    fraction = "." + found[2].ljust(6, "0")[:6] if found[2] else ""
    return datetime.fromisoformat(found[1] + fraction + (found[3] or "").replace("Z", "+00:00"))


def _parts(kind, value):
    _require(all(isinstance(each, Digits) and each not in NOT_FINITE for each in value))
    _require(all(Decimal(each) == Decimal(each).to_integral_value() for each in value))
    parts = [_within(int(Decimal(each)), 31) for each in value]
    _require(len(parts) == 3 if kind == "date" else kind.startswith("local") and 5 <= len(parts) <= 7)
    try:
        if kind == "date":
            return (date(*parts) - date(1970, 1, 1)).days
        *moment, nanos = [*parts, 0, 0][:7]
        _require(0 <= nanos < 10**9)
        return (datetime(*moment) - datetime(1970, 1, 1)) // timedelta(microseconds=1) + nanos // 1000
    except (ValueError, OverflowError):
        raise ModelError from None


def plain(column) -> list:
    """An Arrow array as the second reader has its values: times are numbers."""
    type_ = column.type
    rows: list
    if pa.types.is_struct(type_):
        fields = [plain(column.field(i)) for i in range(type_.num_fields)]
        rows = [
            dict(zip([each.name for each in type_], row, strict=True)) for row in zip(*fields, strict=True)
        ]
    elif pa.types.is_list(type_):
        items, ends = plain(column.values), column.offsets.to_pylist()
        rows = [items[ends[i] : ends[i + 1]] for i in range(len(column))]
    elif pa.types.is_map(type_):
        items, ends = (
            list(zip(plain(column.keys), plain(column.items), strict=True)),
            column.offsets.to_pylist(),
        )
        rows = [items[ends[i] : ends[i + 1]] for i in range(len(column))]
    elif pa.types.is_timestamp(type_):
        rows = column.cast(pa.int64()).to_pylist()
    elif pa.types.is_date(type_):
        rows = column.cast(pa.int32()).to_pylist()
    else:
        rows = column.to_pylist()
    return [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]


def _number(kind, tree, value):
    if isinstance(value, list):
        return _parts(kind, value)
    _require(isinstance(value, str))
    if kind in ("float", "double") and value in NOT_FINITE:
        return float(value)
    is_digits = isinstance(value, Digits)
    if kind == "date" and not is_digits and len(value) == 10 and value[4] == "-":
        try:
            return (date.fromisoformat(value) - date(1970, 1, 1)).days
        except ValueError:
            raise ModelError from None
    if "timestamp" in kind and not is_digits and "T" in value:
        try:
            moment = _moment(value)
        except ValueError:
            raise ModelError from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
    _require(value.strip() == value)
    try:
        digits = json.loads(value, parse_int=Digits, parse_float=Digits, parse_constant=str)
    except ValueError:
        raise ModelError from None
    _require(isinstance(digits, Digits))
    if kind in ("float", "double"):
        limit = float("inf") if kind == "double" else float(2**128 - 2**103)
        _require(abs(float(digits)) < limit)
        return float(np.float32(digits)) if kind == "float" else float(digits)
    try:
        number = Decimal(digits)
    except InvalidOperation:
        raise UnknownError from None
    _require(number.adjusted() < 40 or number == 0)
    if "timestamp" in kind:
        is_seconds = any(mark in digits for mark in ".eE")
        if number <= -1 and "." in digits and not any(mark in digits for mark in "eE"):
            # Java's second before 1970, and what has passed of it.
            number = 2 * number.to_integral_value("ROUND_CEILING") - number
        micros = number * 10**6 if is_seconds else number * (1000 if kind.endswith("millis") else 1)
        return _within(int(micros.to_integral_value("ROUND_FLOOR")), 63)
    if kind == "decimal":
        scaled = number.scaleb(tree["scale"])
        _require(scaled == scaled.to_integral_value() and abs(scaled) < 10 ** tree["precision"])
        return (number + 0).quantize(Decimal(1).scaleb(-tree["scale"]))
    _require(number == number.to_integral_value())
    return _within(int(number), 63 if kind == "long" else 31)
