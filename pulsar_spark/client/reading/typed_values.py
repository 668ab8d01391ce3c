"""Payloads of messages -> a typed column; each payload is decoded with its own schema version.

Messages are grouped by version and decoded group by group; rows keep the order of messages. Owns the choice
of each message's schema, and the error of a message without a schema. Must not depend on the layout of
values, nor on the handling of bad rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import Flags, Ints, joined, with_nulls
from pulsar_spark.client.reading.decoded_messages import DecodedMessages, SchemaVersions, schema_versions
from pulsar_spark.errors import SchemaChangedError, SchemaError, UnsupportedError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats, key_value
from pulsar_spark.values.interfaces import ValueDecoder, type_name
from pulsar_spark.values.value_bounds import ANY_WORK, ValueCost, ValueWork, WorkPool, part_ends
from pulsar_spark.wire.entry.entries import Floats

# Function that returns the schemas of a topic by version number, for the given numbers that exist.
VersionsOf: TypeAlias = Callable[[TopicName, Iterable[int]], Mapping[int, Schema]]
# The decoder of a version's values, or the reason why the values cannot be decoded.
_Reader: TypeAlias = "ValueDecoder | str"
_MakeSchema: TypeAlias = Callable[[SchemaType], Schema]

# Types of schemas that cannot decode values; the user may set another schema.
OPAQUE_TYPES = (SchemaType.NONE, SchemaType.PROTOBUF, SchemaType.EXTERNAL)

_SHOWN = 500  # maximum characters of field names in an error
_NUMBERS = (pa.int32(), pa.int64(), pa.float32(), pa.float64())  # Avro can promote each to the later ones
# Maximum schema versions of a topic that are kept, because a producer may write any version number.
_MAX_VERSIONS = 10_000
_MAX_VERSION = (1 << 63) - 1  # a version is an int64

_MAX_DEFINITIONS = 16 << 20  # maximum bytes of the schemas of cached decoders
_OVERHEAD = 2000  # bytes counted for each decoder in addition to its schemas

_NO_SUCH = "the topic does not have this version of its schema: it was deleted, or never registered"
_TOO_MUCH = "it has more items or fields than its bytes pay for, and its task has no allowance left"
_LOAD_AGAIN = (
    "Call load() and start the query again: the message's version is newer than the columns, and "
    "may fit the new ones"
)
_PIN = (
    "The message is older than the columns, which are those of version {columns}: schemaVersion={version} "
    "keeps those of the message"
)
_READ_ON = (
    "Set mode to PERMISSIVE or DROPMALFORMED to continue without such messages, or start after them "
    "with startingOffsets"
)
_LOOK_UP = "See docs/schemas.md for what may be wrong with such messages"


@dataclass(frozen=True, slots=True)
class ReaderSchema:
    """The schemas to which the values of a whole read are resolved: Avro's reader schemas.

    Attributes:
        pinned: topic without partition -> number and schema of its schema version at the start of the read.
            The pinned schema is the topic's reader schema, or ``schema`` if columns of ``schema`` are
            missing in it. Values of other topics are read with their writer schemas. Writer schemas are
            always requested, because a topic that was deleted and created again may reuse a number.
        is_given: True: ``schema`` is the user's, and the only reader schema.
        is_default: True: values without a schema at the broker were written with ``schema``. False: values
            without a schema are bad.
        load: unique name of this read, so that it does not use schemas cached for another read.
    """

    schema: Schema
    pinned: Mapping[TopicName, tuple[int, Schema]] = field(default_factory=dict)
    is_given: bool = False
    is_default: bool = False
    load: str = field(default="", compare=False)

    @property
    def type(self) -> pa.DataType:
        """Returns the type of a column with all fields of the schema; raises as ``formats.column_type``."""
        return formats.column_type(self.schema)

    def check_columns(self) -> None:
        """Raises UnsupportedError for a field that has no column, which ``type`` leaves out."""
        formats.check_columns(self.schema)

    def check(self, target: pa.DataType) -> None:
        """Raises SchemaError if values of the schema cannot be read as a type."""
        _DECODERS.get(self.schema, self.schema, target)

    def has_all_of(self, own: Schema) -> bool:
        """Whether the column has all fields of another topic's schema; raises the errors of :attr:`type`."""
        return not any(changed_fields(self.type, formats.column_type(own)))

    def decoder(self, writer: Schema, own: Schema, target: pa.DataType) -> ValueDecoder | str:
        """Returns the decoder of a topic's values to a type, or the reason why the values cannot be decoded.

        ``own``: reader schema to try first, unless ``is_given``; then :attr:`schema` is tried.
        """
        if self.is_default and writer.type in OPAQUE_TYPES:
            writer = self.schema
        # Tries the topic's schema first: only one of the two may allow null, or have an enum's new symbol.
        words = ""
        for reader in (self.schema,) if self.is_given else dict.fromkeys((own, self.schema)):
            try:
                return _DECODERS.get(writer, reader, target)
            except (SchemaError, UnsupportedError) as error:
                words = error.what
        return words


def schema_like(own: Schema, value: _MakeSchema | None, key: _MakeSchema | None) -> Schema:
    """Returns a topic's schema in which the user's schemas replace the schemas of values and keys.

    ``value`` and ``key`` return the user's schema for a given schema type; ``key`` is used for KEY_VALUE
    only. None keeps the topic's schema.
    """
    if own.type is not SchemaType.KEY_VALUE:
        return own if value is None else value(own.type)
    parts = key_value.parts_of(own)
    made = parts._replace(key=schema_like(parts.key, key, None), value=schema_like(parts.value, value, None))
    return key_value.schema_of(made)


class TypedValues:
    """n values as a column, and the errors of bad values.

    Args:
        pinned: the columns' schema version, for advice in errors; -1: none; _MAX_VERSION: no advice.

    Attributes:
        column: n rows of the target's type; null for bad rows, and for tombstones that have null in ``keys``.
        payloads: payloads of the values, ``binary`` [n]; null for tombstones. A bad row with an empty payload
            counts as a tombstone if its message has a key.
        keys: keys of the messages if the schema is KEY_VALUE, ``binary`` [n]; else nulls.
        is_bad: flags of bad rows, bool[n]; None: all rows are good.
    """

    def __init__(
        self,
        messages: DecodedMessages,
        first: int,
        payloads: pa.BinaryArray,
        keys: pa.BinaryArray,
        groups: _Groups,
        *,
        work: ValueWork,
        pinned: int,
    ) -> None:
        self.payloads = payloads
        self._first = first
        self.keys = keys
        self._pinned = pinned
        self._messages = messages
        self._groups = groups
        self.column, self.is_bad = groups.decode(payloads, keys, work)
        self._has_too_much = work.refused if work.is_limited else None
        if self._has_too_much is not None:
            payloads, keys = (with_nulls(each, self._has_too_much) for each in (payloads, keys))
        deleted = self._deleted()
        if deleted is not None:
            self.payloads, payloads = (with_nulls(each, deleted) for each in (self.payloads, payloads))
            self.column, self.is_bad = groups.decode(payloads, keys, ANY_WORK)
        if self._has_too_much is not None and self._has_too_much.any():
            self.is_bad = self._has_too_much if self.is_bad is None else self.is_bad | self._has_too_much

    def _deleted(self) -> Flags | None:
        """Returns flags of the bad rows that are deletions, bool[n]; None: there are no deletions.

        Most clients cannot send a null, so the broker's compaction deletes a key by an empty payload.
        """
        if self.is_bad is None:
            return None
        sizes = pc.fill_null(pc.binary_length(self.payloads), -1).to_numpy()
        deleted: Flags = self.is_bad & (sizes == 0)
        if deleted.any():
            keys = self._messages.key.slice(self._first, len(deleted))
            deleted &= keys.is_valid().to_numpy(zero_copy_only=False)
        return deleted if deleted.any() else None

    def error(self, row: int, *, is_fatal: bool) -> SchemaError:
        """Returns the error of a bad row, with its position, version and field.

        ``is_fatal``: whether the error ends the read, and so advises another ``mode``; else it is a warning.
        """
        version, reader = self._groups.of(row)
        if self._has_too_much is not None and self._has_too_much[row]:
            words = _TOO_MUCH
        elif isinstance(reader, str):
            words = reader
        else:
            words = reader.explain(self.payloads[row].as_py(), self.keys[row].as_py())
        hints = [_READ_ON if is_fatal else _LOOK_UP]
        if version is not None and version != self._pinned != _MAX_VERSION and reader != _NO_SUCH:
            older = _PIN.format(version=version, columns=self._pinned)
            hints.insert(0, _LOAD_AGAIN if version > self._pinned else older)
        which = "a value" if version is None else f"a value of schema version {version}"
        messages = self._messages
        return SchemaError(
            f"{which} cannot be read: {words}",
            topic=str(messages.topic),
            message_id=str(_message_id(messages, self._first + row)),
            advice=". ".join(hints),
        )


class TypedValueReader:
    """Reads the values of one range of a topic partition.

    A missing schema version is cached as missing, because versions are registered before their messages.

    Args:
        versions_of: function that returns the topic's schemas; it need not cache missing versions.
        target: type of the column: the type of ``reader``, or a projection of it.
        refuse_changes: whether a newer schema version is an error if the columns cannot hold its values.
        pool: budget of work that all readers of the task share; None: this is the only reader.
    """

    def __init__(
        self,
        versions_of: VersionsOf,
        topic: TopicName,
        reader: ReaderSchema,
        target: pa.DataType,
        *,
        refuse_changes: bool = False,
        pool: WorkPool | None = None,
    ) -> None:
        self._versions_of = versions_of
        self._topic = topic
        self._reader = reader
        self._target = target
        self._refuse_changes = refuse_changes
        self._pool = pool or WorkPool()
        self._own: Schema | None
        self._pinned, self._own = reader.pinned.get(topic.base, (-1, None))
        self._writers: dict[int, Schema] = {}
        self._readers: dict[int, _Reader] = {}
        self._default = self._of_writer(reader.schema) if reader.is_default else None

    def read(self, messages: DecodedMessages) -> Iterator[TypedValues]:
        """Reads the values of at least one message, in parts of bounded memory.

        Parts are read lazily, and not kept; most messages are one part. With ``refuse_changes``, raises
        SchemaChangedError if the columns cannot hold values of a newer version.
        """
        payloads = messages.value
        has_keys = self._reader.schema.type is SchemaType.KEY_VALUE
        keys = messages.key if has_keys else pa.nulls(len(payloads), pa.binary())
        versions = schema_versions(messages)
        groups = _Groups(versions, self._of_versions(versions, messages), self._target)
        work = self._work(messages.items_per_byte, payloads, keys)
        ends = part_ends(self._target, payloads, keys, groups.costs, versions.of_row)
        return (
            TypedValues(
                messages,
                first,
                payloads[first:end],
                keys[first:end],
                groups.part(first, end),
                work=work.part(slice(first, end)),
                pinned=_MAX_VERSION if self._reader.is_given else self._pinned,
            )
            for first, end in pairwise([0, *ends])
        )

    def _work(self, rates: Floats | None, payloads: pa.BinaryArray, keys: pa.BinaryArray) -> ValueWork:
        """Returns each value's work limit: its bytes times its ``rates``, float64[n]; None: no limit."""
        if rates is None:
            return ANY_WORK
        sizes = sum(pc.fill_null(pc.binary_length(each), 0).to_numpy() for each in (payloads, keys))
        return ValueWork(rates * np.maximum(sizes, 1), self._pool)

    def _of_versions(self, versions: SchemaVersions, messages: DecodedMessages) -> list[_Reader]:
        if len(self._readers) > _MAX_VERSIONS:
            self._readers.clear()
        numbers = [version for version in versions.distinct if not isinstance(version, str)]
        new = [version for version in numbers if version not in self._readers]
        if new:
            unknown = [version for version in new if version not in self._writers]
            if unknown:
                self._writers.update(self._versions_of(self._topic, unknown))
                if self._own is not None and self._pinned in unknown:
                    # The pinned schema is used if its version was deleted after the start of the read.
                    self._writers.setdefault(self._pinned, self._own)
            for version in new:
                writer = self._writers.get(version)
                is_newer = version > self._pinned or (version == self._pinned and writer != self._own)
                if writer is not None and self._refuse_changes and is_newer:
                    self._check_changes(writer, version, versions, messages)
                self._readers[version] = (
                    self._default or _NO_SUCH if writer is None else self._of_writer(writer)
                )
        return [
            self._default or version if isinstance(version, str) else self._readers[version]
            for version in versions.distinct
        ]

    def _of_writer(self, writer: Schema) -> _Reader:
        return self._reader.decoder(writer, self._own or writer, self._target)

    def _check_changes(
        self, writer: Schema, version: int, versions: SchemaVersions, messages: DecodedMessages
    ) -> None:
        try:
            changes = list(changed_fields(self._reader.type, formats.column_type(writer)))
            changes += formats.new_values(writer, self._own or writer)
        except (SchemaError, UnsupportedError):
            return  # not an error, because no type of column can hold values of this version
        reader = self._of_writer(writer)
        if not changes and isinstance(reader, str):
            changes = [reader]
        if changes:
            place = versions.distinct.index(version)
            first = 0 if versions.of_row is None else int((versions.of_row == place).argmax())
            raise SchemaChangedError(
                f"version {version} of the schema does not fit this query's columns: "
                f"{', '.join(changes)[:_SHOWN]}",
                topic=str(messages.topic),
                message_id=str(_message_id(messages, first)),
            )


class _Groups:
    def __init__(self, versions: SchemaVersions, readers: Sequence[_Reader], target: pa.DataType) -> None:
        self._versions = versions
        self._readers = readers
        self._target = target

    @property
    def costs(self) -> list[ValueCost]:
        return [ValueCost() if isinstance(reader, str) else reader.cost for reader in self._readers]

    def part(self, first: int, end: int) -> _Groups:
        of_row = self._versions.of_row
        some = None if of_row is None else of_row[first:end]
        return _Groups(SchemaVersions(self._versions.distinct, some), self._readers, self._target)

    def of(self, row: int) -> tuple[int | None, _Reader]:
        """Returns the version of a row (None: no version), and its decoder."""
        place = 0 if self._versions.of_row is None else int(self._versions.of_row[row])
        version = self._versions.distinct[place]
        return None if isinstance(version, str) else version, self._readers[place]

    def decode(
        self, values: pa.BinaryArray, keys: pa.BinaryArray, work: ValueWork
    ) -> tuple[pa.Array, Flags | None]:
        """Decodes the rows of each version together; returns them in their order, and flags of bad rows."""
        if len(self._readers) == 1:
            return self._decode(self._readers[0], values, keys, work)
        groups = list(self._rows())
        if len(groups) == 1:
            return self._decode(groups[0][0], values, keys, work)
        columns, bad = [], []
        for reader, rows in groups:
            indexes = pa.array(rows)
            column, is_bad = self._decode(reader, values.take(indexes), keys.take(indexes), work.part(rows))
            columns.append(column)
            bad.append(np.zeros(len(rows), np.bool_) if is_bad is None else is_bad)
        is_bad = np.empty(len(values), np.bool_)
        is_bad[np.concatenate([rows for _, rows in groups])] = np.concatenate(bad)
        column = joined(columns, [rows for _, rows in groups])
        return column, is_bad if is_bad.any() else None

    def _rows(self) -> Iterator[tuple[_Reader, Ints]]:
        """Yields each distinct decoder and its row indexes; all rows without a decoder are one group."""
        assert self._versions.of_row is not None
        groups: dict[Hashable, int] = {}
        readers: list[_Reader] = []
        number_of = np.empty(len(self._readers), np.int64)
        for place, reader in enumerate(self._readers):
            plan = None if isinstance(reader, str) else reader.plan
            number_of[place] = groups.setdefault(plan, len(groups))
            if len(readers) < len(groups):
                readers.append(reader)
        of_row = number_of[self._versions.of_row]
        order = np.argsort(of_row, kind="stable")
        bounds = np.searchsorted(of_row[order], np.arange(len(groups) + 1))
        for number, reader in enumerate(readers):
            rows = order[bounds[number] : bounds[number + 1]]
            if len(rows):
                yield reader, rows

    def _decode(
        self, reader: _Reader, values: pa.BinaryArray, keys: pa.BinaryArray, work: ValueWork
    ) -> tuple[pa.Array, Flags | None]:
        if not isinstance(reader, str):
            decoded = reader.decode(values, keys, work)
            return decoded.column, decoded.is_bad
        # A tombstone without a typed key has nothing to decode, so it is good.
        is_bad: Flags = pc.or_(values.is_valid(), keys.is_valid()).to_numpy(zero_copy_only=False)
        return pa.nulls(len(values), self._target), is_bad if is_bad.any() else None


def changed_fields(old: pa.DataType, new: pa.DataType, path: str = "") -> Iterator[str]:
    """Yields the names of fields, at any depth, that an older type lacks or cannot hold."""
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        names = {each.name: each.type for each in old}
        for each in new:
            if each.name in names:
                yield from changed_fields(names[each.name], each.type, f"{path}{each.name}.")
            else:
                yield f"{path}{each.name}"
    elif pa.types.is_list(old) and pa.types.is_list(new):
        yield from changed_fields(old.value_type, new.value_type, path)
    elif pa.types.is_map(old) and pa.types.is_map(new):
        yield from changed_fields(old.item_type, new.item_type, path)
    elif old != new and not (old in _NUMBERS and new in _NUMBERS[: _NUMBERS.index(old)]):
        yield f"{path[:-1] or 'the value'} as {type_name(new)}"


class _Decoders:
    """Caches a process's last used decoders, up to a total size of their schemas. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._kept: OrderedDict[tuple[Schema, Schema, pa.DataType], ValueDecoder] = OrderedDict()
        self._size = 0

    def get(self, writer: Schema, reader: Schema, target: pa.DataType) -> ValueDecoder:
        key = writer, reader, target
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        made = formats.decoder(writer, reader, target)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made
                self._size += _cost(key)
            while self._size > self._max_bytes and len(self._kept) > 1:
                self._size -= _cost(self._kept.popitem(last=False)[0])
        return made


def _cost(key: tuple[Schema, Schema, pa.DataType]) -> int:
    return len(key[0].data) + len(key[1].data) + _OVERHEAD


_DECODERS = _Decoders(_MAX_DEFINITIONS)


def _message_id(messages: DecodedMessages, row: int) -> MessageId:
    index = messages.batch_index
    batch_index = None if index is None else index[row].as_py()
    ledger, entry = messages.ledger[row].as_py(), messages.entry[row].as_py()
    return MessageId(ledger, entry, -1 if batch_index is None else batch_index)
