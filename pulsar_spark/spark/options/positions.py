"""Parses starts and ends of reads: words, message ids, the JVM connector's bytes, times.

A position means "read up to and including this message". A start names the first message to read, so its
position is the previous message's. An end names the last message. Words and times are resolved later, with
requests to the broker. A time, as start or end, is the position before the first message published at or
after it.

    latest                                       a word for all partitions
    {"t": {"0": "12:5", "1": "earliest"}}        by partition; "-1" for a topic without partitions
    {"persistent://public/default/t-partition-0": [8, 12, 16, 5, ...]}    bytes of MessageIdData
    {"subscription": "...", "topics": {"t": {"0": "12:5"}}}    a query's offset, as Spark shows it
    1700000000000, 2024-05-01T12:00:00+02:00     a time for all partitions
    {"t": 1700000000000, "u": "2024-05-01"}      times by topic, or by partition

Pure: no requests to brokers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any, NamedTuple

from pulsar_spark.client import parse_message_id
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import MessageId, TopicName


class PositionWord(Enum):
    """A word for a position, whose message id only the broker knows."""

    EARLIEST = "earliest"
    LATEST = "latest"
    SUBSCRIPTION = "subscription"


class AtTime(NamedTuple):
    """The position before the first message published at or after ``ms``, milliseconds since 1970 (UTC)."""

    ms: int


# The start or end of one partition's read. A read begins after a MessageId, or ends with it.
Position = PositionWord | AtTime | MessageId


@dataclass(frozen=True, slots=True)
class Positions:
    """A start or an end of a read, as the user gave it.

    Attributes:
        everywhere: position of all partitions; None: ``named`` has a position for each.
        named: positions by partition; times by topic or partition.
        others: position of partitions that ``named`` lacks; None: ``named`` must have all.
    """

    option: str
    everywhere: PositionWord | AtTime | None
    named: Mapping[TopicName, Position] = field(default_factory=dict)
    others: PositionWord | None = None
    is_default: bool = False

    def of(self, partitions: Iterable[TopicName]) -> dict[TopicName, Position]:
        """Returns the position of each partition that is read.

        Raises OptionError: a partition has no position, or a named partition is not read.
        """
        if self.everywhere is not None:
            return dict.fromkeys(partitions, self.everywhere)
        names = {partition: self._name_of(partition) for partition in partitions}
        topics = {partition.base for partition in names}
        for name in sorted(self.named.keys() - set(names.values())):
            # In a query's offset, LATEST is written "done": the segment was read to its end.
            is_latest = self.named[name] is PositionWord.LATEST
            is_done = name.is_segment and name.base in topics and is_latest
            if not (name in topics and isinstance(self.named[name], AtTime)) and not is_done:
                raise OptionError(
                    f"{self.option} names a topic or partition that this query does not read",
                    topic=str(name),
                    advice="Remove it from the option, or read it as well. Give a partitioned topic's "
                    "positions by partition number, and those of a topic without partitions with the "
                    'number "-1"',
                )
        return {partition: self._of_one(partition, name) for partition, name in names.items()}

    def _name_of(self, partition: TopicName) -> TopicName | None:
        """Returns a partition's key in ``named``: its own name, or its topic's if the topic has a time."""
        if partition in self.named:
            return partition
        return partition.base if isinstance(self.named.get(partition.base), AtTime) else None

    def _of_one(self, partition: TopicName, name: TopicName | None) -> Position:
        if name is not None:
            return self.named[name]
        if self.others is not None:
            return self.others
        raise OptionError(
            f"{self.option} has no position for a partition that is read",
            topic=str(partition),
            advice="Give a position for each partition, or one word for all",
        )


def parse_offsets(option: str, text: str, *, end: bool) -> Positions:
    """Parses ``startingOffsets`` or, with ``end``, ``endingOffsets``."""
    word = _WORDS.get(text.lower())
    if word is not None:
        return Positions(option, word)
    if not text.startswith("{"):
        raise _malformed(option, text, "it is neither JSON nor one of earliest, latest, subscription")
    data = _object(option, text)
    if not _is_query_offset(option, data):
        return Positions(option, None, _named(option, data, end))
    # A query's offset names the last messages read, like an end. It lacks newer partitions: EARLIEST.
    named = _named(option, data["topics"], end=True, is_query_offset=True)
    return Positions(option, None, named, PositionWord.EARLIEST)


def parse_times(option: str, text: str) -> Positions:
    """Parses ``startingTime`` or ``endingTime``; a time of day without a zone is UTC.

    Raises OptionError: the text has none of the forms, or is a number that must be seconds.
    """
    if not text.startswith("{"):
        return Positions(option, _time(option, text))
    named: dict[TopicName, Position] = {}
    for name, value in _object(option, text).items():
        topic = TopicName.parse(name, scalable=True)
        if topic in named:
            raise OptionError(f"{option} names a topic twice", topic=str(topic))
        named[topic] = _time(option, value, topic)
    return Positions(option, None, named)


def check_order(start: Positions, end: Positions) -> None:
    """Raises OptionError for an end before the start, if both are known without the broker.

    An end one entry before the start is allowed, and reads nothing. Within one entry, an end before the
    start is refused.
    """
    if start.everywhere is not None and end.everywhere is not None:
        _check_order(start, end, start.everywhere, end.everywhere, None)
    for name in start.named.keys() | end.named.keys():
        first = start.everywhere or start.named.get(name, start.named.get(name.base))
        last = end.everywhere or end.named.get(name, end.named.get(name.base))
        if first is not None and last is not None:
            _check_order(start, end, first, last, name)


def _check_order(
    start: Positions, end: Positions, first: Position, last: Position, topic: TopicName | None
) -> None:
    times = isinstance(first, AtTime) and isinstance(last, AtTime) and last < first
    ids = isinstance(first, MessageId) and isinstance(last, MessageId) and last < first
    if isinstance(first, MessageId) and first.batch_index >= 0 and start.others is None:
        ids = ids or first == last  # the end is one message before the start, which is not a query's offset
    words = first is PositionWord.LATEST and last is PositionWord.EARLIEST
    if times or ids or words:
        raise OptionError(
            f"the position of {end.option} is before that of {start.option}",
            topic=None if topic is None else str(topic),
            advice="Set a start that is before the end",
        )


_WORDS = {word.value: word for word in PositionWord}
_DONE = "done"  # a query's offset has this for a segment that was read to the end
_MAX_ID = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# March 1973 in ms. Smaller times are refused, because they are probably seconds; 0 is accepted.
_FIRST_MS = 100_000_000_000
_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d{1,9})")


def _object(option: str, text: str) -> dict[str, Any]:
    try:
        data = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _malformed(option, text, str(error)) from None
    if not isinstance(data, dict) or not data:
        raise _malformed(option, text, "it names no topic")
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it contains a name twice")
    return found


def _malformed(option: str, text: str, why: str) -> OptionError:
    return OptionError(
        f"{option} is {text[:200]!r}: {why}",
        advice='Write a word, or JSON such as {"topic": {"0": "ledger:entry", "1": "earliest"}}',
    )


def _is_query_offset(option: str, data: dict[str, Any]) -> bool:
    """Whether the JSON is an offset from a query's checkpoint or progress, and not positions by topic."""
    topics = data.get("topics")
    if isinstance(data.get("subscription"), str) and isinstance(topics, dict):
        newer = sorted(data.keys() - {"subscription", "topics", "witness"})
        if newer:
            raise OptionError(
                f"{option} holds {', '.join(newer)[:100]}, which this version of pulsar_spark cannot read",
                advice="Use an offset that a query of this version, or of an older one, wrote",
            )
        return True
    if isinstance(topics, dict) and "backlogEntries" in data:
        raise OptionError(
            f"{option} is the latestOffset of a query's progress, which the query has not reached",
            advice="Use the endOffset of the progress",
        )
    return False


def _named(
    option: str, topics: dict[str, Any], end: bool, *, is_query_offset: bool = False
) -> dict[TopicName, Position]:
    named: dict[TopicName, Position] = {}
    values = [(TopicName.parse(name, scalable=True), value) for name, value in topics.items()]
    # "done" is valid for segments, and for partitions whose topic the JSON also names as a scalable topic.
    scalable = {topic for topic, _ in values if topic.is_scalable} if is_query_offset or not end else set()
    for topic, value in values:
        for partition, place in _by_partition(option, topic, value):
            if partition in named:
                raise OptionError(f"{option} names a partition twice", topic=str(partition))
            is_done = place == _DONE and partition.scalable in scalable
            named[partition] = PositionWord.LATEST if is_done else _position(option, partition, place, end)
    return named


def _by_partition(option: str, topic: TopicName, value: Any) -> Iterator[tuple[TopicName, Any]]:
    """Yields one topic's partitions with their JSON values; two JSON names may mean the same partition."""
    if isinstance(value, list):
        yield topic, _from_bytes(option, topic, value)
        return
    if not isinstance(value, dict) or not value:
        raise OptionError(
            f"{option} has {str(value)[:100]!r} for a topic",
            topic=str(topic),
            advice='Give positions by partition number, such as {"0": "ledger:entry"}; "-1" is for a topic '
            "without partitions",
        )
    for number, place in value.items():
        if topic.is_scalable:
            yield _segment(option, topic, number), place
            continue
        if not re.fullmatch(r"-1|0|[1-9][0-9]{0,8}", number):
            raise OptionError(f"{option}: {number[:20]!r} is not a partition number", topic=str(topic))
        own = int(number) in (-1, topic.partition)
        yield topic if own else topic.of_partition(int(number)), place


def _segment(option: str, topic: TopicName, part: str) -> TopicName:
    try:
        return topic.of_part(part)
    except ValueError:
        raise OptionError(
            f"{option}: {part[:40]!r} is not a segment",
            topic=str(topic),
            advice='Write its range of hashes and its number, such as "0000-7fff-0"',
        ) from None


def _from_bytes(option: str, topic: TopicName, values: list[Any]) -> MessageId:
    """Decodes a MessageIdData; its bytes may be signed, as in Java."""
    whole = values and all(type(value) is int and -128 <= value <= 255 for value in values)
    try:
        found = parse_message_id(bytes(value & 0xFF for value in values)) if whole else None
    except ValueError:
        found = None
    if found is None:
        raise OptionError(
            f"{option} has bytes that are not a serialized MessageIdData",
            topic=str(topic),
            advice="Copy the bytes of MessageId.toByteArray()",
        )
    if found.ledger > _MAX_ID or found.entry > _MAX_ID:
        raise OptionError(f"{option} has an impossible message id", topic=str(topic))
    return found


def _position(option: str, partition: TopicName, place: Any, end: bool) -> Position:
    """Parses ``place``: a word, or the message id of the first message; of the last message if ``end``."""
    if isinstance(place, str):
        word = _WORDS.get(place.lower())
        if word in (PositionWord.EARLIEST, PositionWord.LATEST):
            return word
    found: MessageId
    if isinstance(place, MessageId):
        found = place
    else:
        try:
            found = MessageId.parse(place if isinstance(place, str) else json.dumps(place))
        except OptionError as error:
            raise OptionError(
                f"{option}: {error.what}",
                topic=str(partition),
                advice="Write ledger:entry[:batch], earliest or latest",
            ) from None
    if _MAX_ID in (found.ledger, found.entry):
        return PositionWord.LATEST
    if found.ledger < 0:
        return PositionWord.EARLIEST
    return found if end else found.previous


def _time(option: str, value: Any, topic: TopicName | None = None) -> AtTime:
    place = None if topic is None else str(topic)
    try:
        number = _number(value)
        ms = _iso_milliseconds(value) if number is None else number
        if not 0 <= ms <= _MAX_ID:
            raise ValueError(value)
    except (ValueError, OverflowError):
        raise OptionError(
            f"{option} has {str(value)[:100]!r}",
            topic=place,
            advice="Write milliseconds since 1970 or ISO-8601 such as 2024-05-01T12:00:00Z; "
            "a time of day without a zone is UTC",
        ) from None
    if number is not None and 0 < ms < _FIRST_MS:
        meant = f", probably {1000 * ms}" if 1000 * ms >= _FIRST_MS else ""
        raise OptionError(
            f"{option} has {ms}, a time before March 1973: times are milliseconds since 1970",
            topic=place,
            advice=f"Write milliseconds{meant}, or ISO-8601 such as 2024-05-01T12:00:00Z",
        )
    return AtTime(ms)


def _number(value: Any) -> int | None:
    """Returns the ms since 1970 if ``value`` is a number; None: it is a date."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(value)
    is_number = isinstance(value, int) or re.fullmatch(r"[0-9]{1,19}", value)
    return int(value) if is_number else None


def _iso_milliseconds(given: str) -> int:
    # Python 3.10 parses neither Z nor fractions of other than 3 or 6 digits.
    text = re.sub(r"[zZ]$", "+00:00", given.strip())
    text = _FRACTION.sub(lambda match: f".{match[1][:6]:0<6}", text)
    moment = datetime.fromisoformat(text)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    # The time is rounded up, because publish times are whole milliseconds.
    return -((_EPOCH - aware) // timedelta(milliseconds=1))
