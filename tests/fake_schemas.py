"""The schemas of a fake broker's topics, which all partitions of a topic share."""

from __future__ import annotations

from pulsar_spark.ids import TopicName
from pulsar_spark.wire import pulsar_pb2 as pb


class FakeSchemas:
    """Versions of schemas by topic, as brokers were seen to number them."""

    def __init__(self) -> None:
        self._versions: dict[TopicName, list[pb.Schema | None]] = {}

    def register(self, topic: str, schema: pb.Schema) -> int:
        """The version of a schema, which is a new one if the topic does not have it yet."""
        versions = self._versions.setdefault(TopicName.parse(topic).base, [])
        if schema not in versions:
            versions.append(schema)
        return versions.index(schema)

    def latest(self, topic: str) -> tuple[int, pb.Schema] | None:
        """The latest version; that of a deletion has no type and no data."""
        versions = self._versions.get(TopicName.parse(topic).base)
        if not versions:
            return None
        deleted = pb.Schema(name="", schema_data=b"", type="None")
        return len(versions) - 1, versions[-1] or deleted

    def at(self, topic: str, version: int) -> pb.Schema | None:
        """One version; None where there is none, or it was deleted."""
        versions = self._versions.get(TopicName.parse(topic).base, [])
        return versions[version] if version < len(versions) else None

    def delete(self, topic: str) -> None:
        """Delete all versions, which takes the next number."""
        versions = self._versions[TopicName.parse(topic).base]
        versions[:] = [None] * (len(versions) + 1)

    def drop(self, topic: str) -> None:
        """Forget that there ever were any, as with the topic itself."""
        self._versions.pop(TopicName.parse(topic).base, None)
