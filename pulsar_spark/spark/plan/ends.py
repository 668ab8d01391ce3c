"""EndTracker: where topic partitions end, asked as seldom as a prompt answer allows.

Spark's default trigger asks every 12 ms. A partition to which messages come is asked again after a moment.
One whose end stays where it is gets an :class:`ArrivalWatch`, to which the broker sends the first new entry
by itself: that costs no request while nothing comes, and yet a new message is seen at once. Whether the
partition is read to its end makes no difference: messages may wait there for hours, for
``minMessagesPerTrigger`` others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from pulsar_spark.client import ArrivalWatch, Client, Deadline, LastMessageId, run_all
from pulsar_spark.errors import DeadlineError, PulsarError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName

_log = logging.getLogger(__name__)

# Seconds for which an answer is good.
_KNOWN_FOR = 0.05
# Seconds without news after which a partition gets a tail: opening one costs a few requests.
_IDLE_AFTER = 0.25
# Seconds after which a partition with a tail is asked all the same, and the least for each of many.
_ASKED_ANYWAY = 10.0
_ASKED_ANYWAY_EACH = 0.5

Ask = Callable[[Sequence[TopicName]], Mapping[TopicName, LastMessageId | PulsarError]]


class _View:
    """What is known of one partition."""

    def __init__(self, last: MessageId) -> None:
        self.last = last
        self.known = Deadline(_KNOWN_FOR)
        self.idle = Deadline(_IDLE_AFTER)
        self.anyway = Deadline(0.0)
        self.tail: ArrivalWatch | None = None

    @property
    def due(self) -> bool:
        if not self.known.passed:
            return False
        return self.tail is None or self.tail.moved or self.anyway.passed


class EndTracker:
    """The ends of the partitions of one query.

    Args:
        client: for the tails.
        ask: asks the broker for the last messages of partitions, all at the same time.
        on_answer: told of each answer.
        on_chunk: told of each partition in which a part of a chunked message was met.
    """

    def __init__(
        self,
        client: Client,
        ask: Ask,
        on_answer: Callable[[TopicName, LastMessageId], None],
        on_chunk: Callable[[TopicName], None],
    ) -> None:
        self._client = client
        self._ask = ask
        self._on_answer = on_answer
        self._on_chunk = on_chunk
        self._views: dict[TopicName, _View] = {}

    def add(self, answers: Mapping[TopicName, LastMessageId]) -> None:
        """Look at more partitions, of which this is known already."""
        for topic, answer in answers.items():
            self._views[topic] = _View(answer.last)

    def drop(self, topic: TopicName) -> None:
        """Look at a partition no more."""
        view = self._views.pop(topic, None)
        if view is not None:
            self._close([view])

    def close(self) -> None:
        """Look at nothing any more."""
        self._close(self._views.values())
        self._views.clear()

    def last(self, topic: TopicName) -> MessageId:
        """The last visible message as far as known; entry -1 where there is none."""
        return self._views[topic].last

    def refresh(self) -> list[TopicName]:
        """Ask what is due, and return the partitions that are gone.

        A broker that does not answer is logged, and asked again by the next call: an exception would end the
        query. Until it answers, its partitions are as they were.

        Raises:
            PulsarError: the broker refuses the answer.
        """
        due = [topic for topic, view in self._views.items() if view.due]
        gone, answered = [], []
        for topic, answer in self._ask(due).items() if due else ():
            if isinstance(answer, TopicNotFoundError):
                gone.append(topic)
            elif isinstance(answer, PulsarError):
                if not (answer.retriable or isinstance(answer, DeadlineError)):
                    raise answer
                _log.warning("the end of a topic is not known now, it is asked again: %s", answer)
            else:
                self._on_answer(topic, answer)
                view = self._views[topic]
                if view.last != answer.last:
                    view.last, view.idle = answer.last, Deadline(_IDLE_AFTER)
                answered.append(topic)
        for topic in due:
            self._views[topic].known = Deadline(_KNOWN_FOR)
        self._watch(answered)
        return gone

    def _watch(self, topics: Sequence[TopicName]) -> None:
        """Take the tails from partitions that were asked, and give new ones to those without news."""
        for topic in topics:
            tail = self._views[topic].tail
            if tail is not None and tail.is_chunk:
                self._on_chunk(topic)
        # A tail has done its work, or may have missed something: another begins where the end is now.
        self._close([self._views[topic] for topic in topics])
        self._open([topic for topic in topics if self._views[topic].idle.passed])

    def _open(self, topics: list[TopicName]) -> None:
        def open_tail(topic: TopicName) -> ArrivalWatch:
            return ArrivalWatch(self._client, topic, self._views[topic].last.whole_entry)

        tails = run_all([partial(open_tail, topic) for topic in topics]) if topics else []
        for topic, tail in zip(topics, tails, strict=True):
            view = self._views[topic]
            if isinstance(tail, PulsarError):
                _log.info("%s is asked again and again, since it cannot be watched: %s", topic, tail)
            else:
                view.tail = tail
            view.anyway = Deadline(max(_ASKED_ANYWAY, _ASKED_ANYWAY_EACH * len(self._views)))

    def _close(self, views: Iterable[_View]) -> None:
        closing = [view for view in views if view.tail is not None]
        if closing:
            run_all([view.tail.close for view in closing if view.tail is not None])
        for view in closing:
            view.tail = None
