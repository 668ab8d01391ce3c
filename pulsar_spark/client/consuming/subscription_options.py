"""What a consumer subscribes with, and what the broker says of the position of its subscription."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pulsar_spark.errors import UnsupportedError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.wire import commands, wire_values
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.commands import InitialPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionOptions:
    """The contents of SUBSCRIBE.

    Attributes:
        name: of the subscription; it is exclusive. A non-durable one that is opened again gets a number, too.
        durable: whether the broker keeps its position and holds what is not acknowledged.
        initial: where a new subscription begins.
        start: the first entry wanted, inclusive; non-durable subscriptions only.
        create: whether the first SUBSCRIBE may create the topic: for a partition that its topic's metadata
            name, and that the broker has removed as inactive.
        read_compacted: whether to read the compacted topic, if there is one.
        properties: names and values that a new durable subscription gets.
        is_replicated: whether the broker replicates the position to the other clusters of the topic; None: by
            the namespace's policy.
    """

    name: str
    durable: bool
    initial: InitialPosition = InitialPosition.LATEST
    start: MessageId | None = None
    create: bool = False
    read_compacted: bool = False
    properties: tuple[tuple[str, str], ...] = ()
    is_replicated: bool | None = None

    def is_reader_again(self, openings: int) -> bool:
        """Whether this is a non-durable subscription that was open before."""
        return not self.durable and openings > 0

    def subscribe_command(
        self,
        request_id: int,
        consumer_id: int,
        topic: TopicName,
        *,
        openings: int,
        last: MessageId | None,
        consumer_name: str | None,
    ) -> bytes:
        """The SUBSCRIBE command.

        Args:
            request_id: the answer has it, too.
            consumer_id: of the consumer that subscribes.
            topic: one partition, or a topic without partitions.
            openings: how often this consumer was open before; a refused SUBSCRIBE does not count.
            last: the last entry that it gave out; a non-durable subscription begins after it. None: it begins
                at :attr:`start`.
            consumer_name: as the broker shows it; None: the broker makes one.
        """
        is_new = openings == 0
        start = self.start if last is None else MessageId(last.ledger, last.entry + 1)
        return commands.subscribe(
            request_id,
            consumer_id,
            str(topic),
            self._name(openings),
            durable=self.durable,
            # A durable subscription that was removed is recognized: only that one begins at the topic's end.
            initial=self.initial if is_new else InitialPosition.LATEST,
            start=None if self.durable else start,
            create=self.create and is_new,
            read_compacted=self.read_compacted,
            consumer_name=consumer_name,
            properties=self.properties,
            is_replicated=self.is_replicated,
        )

    def _name(self, openings: int) -> str:
        """The name to subscribe with; a reader that was open before has another one.

        A broker that removes a reader's subscription may also remove the cursor of a new one of that name: it
        then gets nothing for ever.
        """
        return f"{self.name}-{openings + 1}" if self.is_reader_again(openings) else self.name


class LastMessageId(NamedTuple):
    """Answer to GET_LAST_MESSAGE_ID.

    Attributes:
        last: the last visible message; entry -1 if the topic has none.
        mark_delete: everything up to here is acknowledged; right after SUBSCRIBE it is where reading begins,
            exclusive.
    """

    last: MessageId
    mark_delete: MessageId

    @classmethod
    def of(cls, command: pb.BaseCommand) -> LastMessageId:
        """Read the answer.

        Raises:
            UnsupportedError: it has no position of the subscription.
        """
        answer = command.getLastMessageIdResponse
        if not answer.HasField("consumer_mark_delete_position"):
            raise UnsupportedError("the broker is too old: it does not report a subscription's position")
        return cls(
            wire_values.from_wire_id(answer.last_message_id),
            wire_values.from_wire_id(answer.consumer_mark_delete_position),
        )
