"""Witness: an entry that a query has read, by which a restart recognizes the cluster. Pure.

Message ids differ between clusters, and overlap by chance. A replicator keeps publish times, so a copy may
have the witness's id and time; but a copy also carries its source: the cluster where it was produced, and its
position there. The entry at the witness's id is judged:

    the broker has at that id                                  verdict
    an entry of the witness's publish time and source          SAME
    another entry                                              OTHER: it is another cluster
    no entry any more, or not yet                              GONE: deleted, or another cluster; a copy of
                                                               the witness elsewhere proves another cluster

A broker keeps a ledger while a subscription has unread messages in it. So if the witness is gone and the
query's subscription stands before it, or does not exist, the cluster may be another one.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from pulsar_spark.errors import OptionError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.wire import pulsar_pb2 as pb

SOURCE_POSITION = "__MSG_PROP_REPL_SOURCE_POSITION"


class Source(NamedTuple):
    """The cluster and position where a copy was produced.

    Attributes:
        cluster: name of the cluster.
        position: position of the entry in that cluster; None if the replicator did not send it.
    """

    cluster: str
    position: MessageId | None


def source_of(metadata: pb.MessageMetadata) -> Source | None:
    """Returns the source of an entry; None if it is not a copy."""
    if not metadata.HasField("replicated_from"):
        return None
    position = None
    for each in metadata.properties:
        if _text(each.key) == SOURCE_POSITION:
            try:
                position = MessageId.parse(_text(each.value))
            except OptionError:
                position = None
    return Source(_text(metadata.replicated_from), position)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


class StoredEntry(Protocol):
    """The fields of an entry that this module uses."""

    @property
    def id(self) -> MessageId:
        """Returns the position of the whole entry."""

    @property
    def publish_time(self) -> int:
        """Returns the publish time in ms since 1970."""

    @property
    def source(self) -> Source | None:
        """Returns the source of a copy; None for the cluster's own entries."""


class Witness(NamedTuple):
    """An entry that a query has read, by which it recognizes the cluster.

    Attributes:
        topic: topic partition.
        id: position of the whole entry.
        publish_time: publish time in ms since 1970.
        source: source of the entry if it is a copy.
    """

    topic: TopicName
    id: MessageId
    publish_time: int
    source: Source | None = None

    @classmethod
    def of(cls, topic: TopicName, entry: StoredEntry) -> Witness:
        """Makes a witness of an entry."""
        return cls(topic, entry.id, entry.publish_time, entry.source)

    def judge(self, found: StoredEntry | None) -> WitnessVerdict:
        """Judges the entry stored at the witness's id; None: no entry."""
        if found is None or found.id != self.id:
            return WitnessVerdict.GONE
        is_same = (found.publish_time, found.source) == (self.publish_time, self.source)
        return WitnessVerdict.SAME if is_same else WitnessVerdict.OTHER

    def is_copied_to(self, entry: StoredEntry) -> bool:
        """Whether an entry is a copy of the witness, if the query read the witness where it was produced."""
        source = entry.source
        return source is not None and (source.position, entry.publish_time) == (self.id, self.publish_time)


class WitnessVerdict(Enum):
    """The judgement of the entry at a witness's id."""

    SAME = "the entry that the query has read"
    OTHER = "another entry: the cluster is another one"
    GONE = "nothing any more"
