"""Settings of producers: ProducerOptions has only values, UserCode has the user's objects.

Both together determine a writer's router (``new_router``).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from pulsar_spark.client.encryption import Encryptor
from pulsar_spark.client.writing.interceptors import ProducerInterceptor
from pulsar_spark.errors import UnsupportedError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.writing.batcher import BatcherBuilder
from pulsar_spark.protocol.writing.routing import (
    HashingScheme,
    MessageRouter,
    Router,
    RoutingMode,
    TaskPlace,
)
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.key_value import parts_of
from pulsar_spark.wire import pulsar_pb2 as pb

# Keys are the names of Pulsar's CompressionType.
COMPRESSION_TYPES = {
    "NONE": pb.NONE,
    "LZ4": pb.LZ4,
    "ZLIB": pb.ZLIB,
    "ZSTD": pb.ZSTD,
    "SNAPPY": pb.SNAPPY,
}

# Number of rows without a key that are sent to one partition before the next partition is used. For batches
# without a limit of messages, and for a replay, which must choose the same partitions.
_BLOCK = 1000

R = TypeVar("R", bound=Router)


class AccessMode(Enum):
    """Whether other producers may write to a topic partition."""

    SHARED = "Shared"
    EXCLUSIVE = "Exclusive"
    WAIT_FOR_EXCLUSIVE = "WaitForExclusive"
    EXCLUSIVE_WITH_FENCING = "ExclusiveWithFencing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """Settings of a producer, by the names of the Java producer.

    Attributes:
        name: producer name; None: the broker chooses.
        initial_sequence_id: the first id is this value + 1, or the broker's last id for this name + 1 if
            higher. None: the first id is 0.
        properties: names and values that the broker shows in the topic's statistics.
        batching_max_bytes: maximum bytes in a batch, before compression; 0 or less: the broker's limit.
        batching_max_publish_delay: seconds that a batch may stay open.
        chunking: whether a message that is too large is sent in chunks; not together with batching.
        chunk_max_message_size: maximum bytes of a chunk; None, or a larger value: the broker's limit.
        max_pending_messages: maximum unacknowledged messages of one partition.
        max_pending_messages_across_partitions: maximum unacknowledged messages of all partitions.
        block_if_queue_full: whether a send waits while the limits are reached; False: QueueFullError.
        memory_limit: maximum bytes of unacknowledged messages, of all topics of a task together.
        send_timeout: seconds from a send to its receipt.
        key_bytes: whether all keys are sent and hashed as base64 text, as with the Java client's
            ``keyBytes``. False: only keys that are not UTF-8; with a SEPARATED KEY_VALUE schema all keys.
        switch_frequency: number of publish delays after which rows without a key use the next partition.
        schema: schema of the values; it is registered if the topic does not have it, and each entry has its
            version. None: the values are bytes.
    """

    name: str | None = None
    access_mode: AccessMode = AccessMode.SHARED
    initial_sequence_id: int | None = None
    properties: tuple[tuple[str, str], ...] = ()
    batching: bool = True
    batching_max_messages: int = 1000
    batching_max_bytes: int = 128 * 1024
    batching_max_publish_delay: float = 0.001
    batcher_builder: BatcherBuilder = BatcherBuilder.DEFAULT
    compression: pb.CompressionType = pb.NONE
    chunking: bool = False
    chunk_max_message_size: int | None = None
    max_pending_messages: int = 10_000
    max_pending_messages_across_partitions: int = 1_000_000
    block_if_queue_full: bool = True
    memory_limit: int = 64 * 1024 * 1024
    send_timeout: float = 30.0
    routing_mode: RoutingMode = RoutingMode.ROUND_ROBIN
    hashing_scheme: HashingScheme = HashingScheme.JAVA_STRING
    key_bytes: bool = False
    switch_frequency: int = 10
    schema: Schema | None = None

    @property
    def is_key_based(self) -> bool:
        """Whether all messages of a batch have one key."""
        return self.batcher_builder is BatcherBuilder.KEY_BASED

    @property
    def sends_key_bytes(self) -> bool:
        """Whether all keys are sent as base64 text, by ``key_bytes`` or for a SEPARATED KEY_VALUE schema."""
        return self.key_bytes or (
            self.schema is not None
            and self.schema.type is SchemaType.KEY_VALUE
            and parts_of(self.schema).is_separated
        )

    def check_topic(self, topic: TopicName, *, has_router: bool, is_transactional: bool) -> None:
        """Raises UnsupportedError if the topic is scalable, and an option does not work with segments."""
        refused = (
            (
                is_transactional,
                "delivery=transactional",
                "a broker that opens a segment again may show rows of open transactions, which may be "
                "aborted later",
            ),
            (self.initial_sequence_id is not None, "initialSequenceId", "the ids of each segment begin at 0"),
            (
                self.access_mode is not AccessMode.SHARED,
                "accessMode",
                "another producer could take a new segment first",
            ),
            (has_router, "messageRouter", "the hash of a row's key chooses its segment"),
        )
        for is_given, option, why in refused:
            if is_given and topic.is_scalable:
                raise UnsupportedError(
                    f"{option} cannot be used with a scalable topic: {why}",
                    topic=str(topic),
                    advice="Leave it out, or write to a topic persistent://...",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCode:
    """Objects of the user that one writer calls.

    Attributes:
        router: function that chooses partitions with ``RoutingMode.CUSTOM``, else None.
        interceptors: interceptors, called in their order on the thread that calls the writer.
    """

    router: MessageRouter | None = None
    encryptor: Encryptor | None = None
    interceptors: Sequence[ProducerInterceptor] = ()


NO_USER_CODE = UserCode()


def new_router(
    kind: type[R],
    options: ProducerOptions,
    code: UserCode,
    partitions: int,
    place: TaskPlace | None,
    *,
    has_equal_blocks: bool = False,
) -> R:
    """Returns the router of one writer. It sends blocks of rows without a key to one partition after another.

    ``has_equal_blocks``: whether all blocks have _BLOCK rows, for any size of batches. Two running copies of
    a task must choose the same partitions, because a broker can refuse one copy only where both write.
    """
    by_time = options.batching and place is None
    mode = options.routing_mode
    block = (options.batching_max_messages or _BLOCK) if options.batching else 1
    return kind(
        mode,
        options.hashing_scheme,
        code.router,
        start=random.randrange(partitions) if place is None else place.first_partition(partitions, mode),
        block=_BLOCK if has_equal_blocks else block,
        switch_after=options.batching_max_publish_delay * options.switch_frequency if by_time else None,
    )
