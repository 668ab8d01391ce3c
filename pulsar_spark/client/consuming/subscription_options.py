"""Settings of a consumer's subscription, and the broker's answer about its position."""

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
        name: name of the exclusive subscription. A non-durable subscription that is opened again also gets a
            number.
        durable: whether the broker keeps the position and the unacknowledged messages.
        initial: start of a new subscription.
        start: first wanted entry, inclusive; non-durable subscriptions only.
        create: whether the first SUBSCRIBE may create the topic, such as a partition that the broker has
            removed as inactive, although the topic's metadata name it.
        read_compacted: whether to read the compacted topic, if there is one.
        properties: names and values that a new durable subscription gets.
        is_replicated: whether the broker replicates the position to the other clusters of the topic; None:
            the namespace's policy decides.
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
        """Returns the SUBSCRIBE command.

        Args:
            openings: number of earlier openings of this consumer, without refused ones.
            last: last returned entry; a non-durable subscription begins after it. None: it begins at
                :attr:`start`.
            consumer_name: name that the broker shows; None: the broker chooses.
        """
        is_new = openings == 0
        start = self.start if last is None else MessageId(last.ledger, last.entry + 1)
        return commands.subscribe(
            request_id,
            consumer_id,
            str(topic),
            self._name(openings),
            durable=self.durable,
            # A removed durable subscription is recognized, because only a new subscription begins at the
            # topic's end.
            initial=self.initial if is_new else InitialPosition.LATEST,
            start=None if self.durable else start,
            create=self.create and is_new,
            read_compacted=self.read_compacted,
            consumer_name=consumer_name,
            properties=self.properties,
            is_replicated=self.is_replicated,
        )

    def _name(self, openings: int) -> str:
        """Returns the subscription's name; a reader that is opened again has another name.

        A broker that removes a reader's subscription may also remove the cursor of a new subscription of that
        name, which then never receives messages.
        """
        return f"{self.name}-{openings + 1}" if self.is_reader_again(openings) else self.name


class LastMessageId(NamedTuple):
    """Answer to GET_LAST_MESSAGE_ID.

    Attributes:
        last: last visible message; entry -1 if the topic has none.
        mark_delete: position up to which all messages are acknowledged; right after SUBSCRIBE, the start of
            reading, exclusive.
    """

    last: MessageId
    mark_delete: MessageId

    @classmethod
    def of(cls, command: pb.BaseCommand) -> LastMessageId:
        """Reads the broker's answer.

        Raises:
            UnsupportedError: the answer has no position of the subscription.
        """
        answer = command.getLastMessageIdResponse
        if not answer.HasField("consumer_mark_delete_position"):
            raise UnsupportedError("the broker is too old: it does not report a subscription's position")
        return cls(
            wire_values.from_wire_id(answer.last_message_id),
            wire_values.from_wire_id(answer.consumer_mark_delete_position),
        )
