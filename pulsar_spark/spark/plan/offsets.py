"""Offsets: the position of a query in all its topic partitions, and its JSON form in Spark's checkpoint.

    {"subscription": "spark-pulsar-6f1c...",
     "topics": {"persistent://public/default/t": {"0": "12:99", "1": "13:4"}}}

A position is the last message taken, ``ledger:entry`` for a whole entry or ``ledger:entry:batch``; the key of
a topic without partitions is ``"-1"``. Pure: no Spark, no client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulsar_spark.errors import OptionError
from pulsar_spark.ids import MessageId, TopicName

# json.loads of an offset; Spark hands it over as a plain dict.
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Offsets:
    """Everything up to these positions is taken.

    Attributes:
        subscription: name of the durable subscription that holds what is not taken yet.
        positions: the last message taken, by topic partition.
    """

    subscription: str
    positions: Mapping[TopicName, MessageId]

    def to_json(self) -> Json:
        """The dict for Spark. Keys are in one fixed order: Spark compares offsets as JSON text."""
        return {"subscription": self.subscription, "topics": positions_to_json(self.positions)}

    def to_json_after(self, before: Offsets, json: Json) -> Json:
        """:meth:`to_json`, faster where little has moved since ``before``, whose dict is ``json``.

        What is the same is shared with that dict, which must not be changed.
        """
        if self.subscription != before.subscription or self.positions.keys() != before.positions.keys():
            return self.to_json()
        topics = dict(json["topics"])
        copied = set()
        for topic, position in self.positions.items():
            if position is not before.positions[topic]:
                base = str(topic.base)
                if base not in copied:
                    copied.add(base)
                    topics[base] = dict(topics[base])
                topics[base][str(topic.partition)] = str(position)
        return {"subscription": self.subscription, "topics": topics}

    @classmethod
    def from_json(cls, data: Json) -> Offsets:
        """Read what :meth:`to_json` made.

        A key that is not known is refused: it was written by a newer version, for which the positions alone
        may not say where to go on, and the next checkpoint would drop it.

        Raises:
            OptionError: it is something else, such as another source's offset or a newer version's.
        """
        newer = sorted(data.keys() - {"subscription", "topics"})
        if newer and data.keys() >= {"subscription", "topics"}:
            raise OptionError(
                f"the checkpoint contains {', '.join(newer)}, which this version of pulsar_spark cannot read",
                advice="Use the version of pulsar_spark that wrote it, or a newer one",
            )
        subscription, topics = data.get("subscription"), data.get("topics")
        if not isinstance(subscription, str) or not isinstance(topics, dict):
            raise _not_ours(data)
        positions = {}
        for name, partitions in topics.items():
            if not isinstance(partitions, dict):
                raise _not_ours(data)
            for number, text in partitions.items():
                positions[_partition(TopicName.parse(name), number)] = MessageId.parse(str(text))
        return cls(subscription, positions)


class OffsetCache:
    """Offsets and their dicts, made again only for moved positions: Spark passes them again and again.

    A dict that Spark gives is compared, not read, where it is one of the last two.
    """

    def __init__(self) -> None:
        self._known: list[tuple[Offsets, Json]] = []  # the last one at the end

    def from_json(self, data: Json) -> Offsets:
        """:meth:`Offsets.from_json`; the same object for the same dict."""
        for offsets, json in reversed(self._known):
            if json == data:
                return offsets
        return self._keep(Offsets.from_json(data), data)[0]

    def to_json(self, offsets: Offsets) -> Json:
        """:meth:`Offsets.to_json`; it must not be changed."""
        if not self._known:
            return self._keep(offsets, offsets.to_json())[1]
        return self._keep(offsets, offsets.to_json_after(*self._known[-1]))[1]

    def _keep(self, offsets: Offsets, json: Json) -> tuple[Offsets, Json]:
        self._known = [*self._known[-1:], (offsets, json)]
        return offsets, json


def positions_to_json(positions: Mapping[TopicName, MessageId]) -> Json:
    """``{topic: {partition: "ledger:entry[:batch]"}}``, sorted by topic and partition number."""
    topics: dict[str, dict[str, str]] = {}
    for topic in sorted(positions, key=lambda name: (str(name.base), name.partition)):
        topics.setdefault(str(topic.base), {})[str(topic.partition)] = str(positions[topic])
    return topics


def _partition(topic: TopicName, number: str) -> TopicName:
    try:
        return topic if int(number) < 0 else topic.of_partition(int(number))
    except ValueError:
        raise OptionError(f"{number!r} is not a partition number", topic=str(topic)) from None


def _not_ours(data: Json) -> OptionError:
    return OptionError(
        f"the checkpoint contains an offset that this source did not write: {str(data)[:200]}",
        advice="Use the query's own checkpointLocation, or a new one",
    )
