"""Offsets: the position of a query in all its topic partitions, and its JSON form in Spark's checkpoint.

    {"subscription": "spark-pulsar-6f1c...",
     "topics": {"persistent://public/default/t": {"0": "12:99", "1": "13:4"}},
     "witness": ["persistent://public/default/t#0", "12:80", 1764400000000]}

A position is the last planned message: ``ledger:entry`` for a whole entry, or ``ledger:entry:batch``. The key
of a topic without partitions is ``"-1"``. A scalable topic has segments:

     "topics": {"topic://public/default/st": {"0000-ffff-0": "done", "0000-7fff-1": "16:5", ...}}

The witness is an entry that identifies the cluster at a restart; if it is a copy, its source follows:
``"cluster", "3:4"``. A query that has moved from another cluster keeps its last positions there:

     "left": {"cluster": "a", "time": 1764400000000, "topics": {...}, "witness": [...]}

Pure: no Spark, no connection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from pulsar_spark.client import CopyRange, Source, Witness
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import MessageId, TopicName

T = TypeVar("T")
Key = tuple[str, str]  # topic, and number of the partition or segment

# An offset after json.loads; Spark passes it as a plain dict.
Json = dict[str, Any]

# The position of a segment that was read to its end, and gets no more messages; and its JSON.
DONE, _DONE = MessageId.LATEST, "done"


class Left(NamedTuple):
    """The cluster that a query has left, its last planned positions there, and an entry that identifies it.

    ``cluster`` is empty if its name is unknown. ``time_ms``: publish time after which the query read no
    message there, in ms since 1970.
    """

    cluster: str
    time_ms: int
    positions: Mapping[TopicName, MessageId]
    witness: Witness | None = None

    def unread(self, topic: TopicName) -> CopyRange | None:
        """Returns the entries of ``cluster`` that are unread, so their copies must be read; None: all."""
        position = self.positions.get(topic)
        return None if position is None else CopyRange(self.cluster, position, self.time_ms)


@dataclass(frozen=True, slots=True)
class Offsets:
    """The positions up to which all messages are planned.

    Attributes:
        subscription: name of the durable subscription that retains later messages.
        positions: last planned message, by topic partition or segment; LATEST: the segment is done.
        witness: entry that identifies the cluster of these positions; None if no entry is known yet.
        left: cluster that the query has left; None if it has not moved.
    """

    subscription: str
    positions: Mapping[TopicName, MessageId]
    witness: Witness | None = None
    left: Left | None = None

    def to_json(self) -> Json:
        """Returns the dict for Spark.

        Its keys are in a fixed order, because Spark compares offsets as JSON text.
        """
        return self._json(updated({}, _texts(self.positions)))

    def to_json_after(self, before: Offsets, json: Json) -> Json:
        """Like :meth:`to_json`, but faster if few positions moved since ``before``, whose dict is ``json``.

        Equal parts are shared with ``json``, which must not be changed.
        """
        old = before.positions
        moved = {topic: each for topic, each in self.positions.items() if each is not old.get(topic)}
        topics = updated(json["topics"], _texts(moved), map(_key, old.keys() - self.positions.keys()))
        return self._json(topics, json if self.left is before.left else None)

    def _json(self, topics: Json, before: Json | None = None) -> Json:
        json = {"subscription": self.subscription, **_place_to_json(topics, self.witness)}
        left = self.left
        if left is not None and before is not None:
            json["left"] = before["left"]
        elif left is not None:
            place = _place_to_json(updated({}, _texts(left.positions)), left.witness)
            json["left"] = {"cluster": left.cluster, "time": left.time_ms, **place}
        return json

    @classmethod
    def from_json(cls, data: Json) -> Offsets:
        """Reads a dict made by :meth:`to_json`.

        An unknown key is refused, because a newer version wrote it: its positions may need the key, and the
        next checkpoint would drop it.

        Raises OptionError: ``data`` is another dict, for example the offset of another source or of a newer
        version.
        """
        if not isinstance(data, dict):  # for example the number that Spark's rate source writes
            raise _not_ours(data)
        newer = sorted(data.keys() - {"subscription", "topics", "witness", "left"})
        if newer and data.keys() >= {"subscription", "topics"}:
            raise OptionError(
                f"the checkpoint contains {', '.join(newer)}, which this version of pulsar_spark cannot read",
                advice="Use the version of pulsar_spark that wrote it, or a newer one",
            )
        subscription = data.get("subscription")
        if not isinstance(subscription, str):
            raise _not_ours(data)
        try:
            left = data.get("left")
            left = None if left is None else Left(str(left["cluster"]), int(left["time"]), *_place(left))
            return cls(subscription, *_place(data), left)
        except (TypeError, KeyError, ValueError, AttributeError):
            raise _not_ours(data) from None


class OffsetCache:
    """Cache of offsets and their dicts, which Spark passes often; rebuilds only the moved positions.

    A dict from Spark that equals one of the last two is only compared, not parsed.
    """

    def __init__(self) -> None:
        self._known: list[tuple[Offsets, Json]] = []  # most recent last

    def from_json(self, data: Json) -> Offsets:
        """Like :meth:`Offsets.from_json`; returns the same object for equal dicts."""
        for offsets, json in reversed(self._known):
            if json == data:
                return offsets
        return self._keep(Offsets.from_json(data), data)[0]

    def to_json(self, offsets: Offsets) -> Json:
        """Like :meth:`Offsets.to_json`; the result must not be changed."""
        if not self._known:
            return self._keep(offsets, offsets.to_json())[1]
        return self._keep(offsets, offsets.to_json_after(*self._known[-1]))[1]

    def _keep(self, offsets: Offsets, json: Json) -> tuple[Offsets, Json]:
        self._known = [*self._known[-1:], (offsets, json)]
        return offsets, json


def done_in(positions: Mapping[TopicName, MessageId]) -> set[TopicName]:
    """Returns the segments that have the position ``done`` in an offset: they were read to their ends."""
    # Each trigger compares all positions, so the ledger is compared first, which is fast.
    return {
        topic for topic, position in positions.items() if position.ledger == DONE.ledger and position == DONE
    }


def is_moved(planned: Mapping[TopicName, MessageId], start: Offsets) -> bool:
    """Whether a micro-batch moves any position; False if it only drops done segments that were removed."""
    if planned == start.positions:
        return False
    kept = {topic: end for topic, end in start.positions.items() if topic in planned or end != DONE}
    return planned != kept


def _place(data: Json) -> tuple[dict[TopicName, MessageId], Witness | None]:
    positions = {
        _partition(TopicName.parse(name, scalable=True), part): (
            DONE if text == _DONE else MessageId.parse(str(text))
        )
        for name, parts in data["topics"].items()
        for part, text in parts.items()
    }
    return positions, _witness(data["witness"]) if "witness" in data else None


def _place_to_json(topics: Json, witness: Witness | None) -> Json:
    if witness is None:
        return {"topics": topics}
    # A list, which is shorter than a dict, because each offset of each query contains the witness.
    json = ["#".join(_key(witness.topic)), str(witness.id), witness.publish_time]
    if witness.source is not None:
        cluster, position = witness.source
        json += [cluster, None if position is None else str(position)]
    return {"topics": topics, "witness": json}


def _witness(found: Any) -> Witness:
    name, place, time_ms, *copied = found
    topic, _, part = name.rpartition("#")
    source = None
    if copied:
        cluster, position = copied
        source = Source(cluster, None if position is None else MessageId.parse(position))
    return Witness(
        _partition(TopicName.parse(topic, scalable=True), part), MessageId.parse(place), int(time_ms), source
    )


def _partition(topic: TopicName, part: str) -> TopicName:
    try:
        return topic.of_part(part)
    except ValueError:
        raise OptionError(f"{part!r} is not a partition or segment", topic=str(topic)) from None


def _texts(positions: Mapping[TopicName, MessageId]) -> dict[tuple[str, str], str]:
    return {
        _key(topic): _DONE if position == DONE else str(position) for topic, position in positions.items()
    }


def _key(topic: TopicName) -> tuple[str, str]:
    return str(topic.base), topic.part


def _not_ours(data: object) -> OptionError:
    return OptionError(
        f"the checkpoint contains an offset that this source did not write: {str(data)[:200]}",
        advice="Use the query's own checkpointLocation, or a new one",
    )


def updated(
    before: Mapping[str, dict[str, T]], changed: Mapping[Key, T], gone: Iterable[Key] = ()
) -> dict[str, dict[str, T]]:
    """Returns ``before``, values by topic and by partition or segment, with ``changed``, without ``gone``.

    The result shares unchanged topics with ``before``, so neither may be changed. The order is fixed: by
    topic, and by the number of the partition or segment.
    """
    lost, new = defaultdict[str, set[str]](set), defaultdict[str, dict[str, T]](dict)
    for base, part in gone:
        lost[base].add(part)
    for (base, part), value in changed.items():
        new[base][part] = value
    found = {**before}
    for base in lost.keys() | new.keys():
        parts = {part: value for part, value in found.get(base, {}).items() if part not in lost[base]}
        is_sorted = new[base].keys() <= parts.keys()
        parts |= new[base]
        found[base] = parts if is_sorted else {part: parts[part] for part in sorted(parts, key=_number)}
    names = found if found.keys() == before.keys() else sorted(found)
    return {base: found[base] for base in names if found[base]}


def _number(part: str) -> int:
    """Returns the number of a partition or segment; -1 for a topic without partitions."""
    return -1 if part == "-1" else int(part.rpartition("-")[2])
