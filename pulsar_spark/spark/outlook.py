"""Outlook: where topic partitions end, asked as seldom as a prompt answer allows.

Spark's default trigger asks every 12 ms. A partition from which rows come is asked again after a moment. One
that is read to its end gets a :class:`Tail`, to which the broker sends the first new entry by itself: that
costs no request while nothing comes, and yet a new message is seen at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from pulsar_spark.client import Client, Deadline, LastMessageId, Tail, together
from pulsar_spark.errors import DeadlineError, PulsarError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName

_log = logging.getLogger(__name__)

# Seconds for which an answer is good.
_KNOWN_FOR = 0.05
# Seconds at its end after which a partition gets a tail: opening one costs a few requests.
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
        self.idle: Deadline | None = None
        self.anyway = Deadline(0.0)
        self.tail: Tail | None = None

    @property
    def due(self) -> bool:
        if not self.known.passed:
            return False
        return self.tail is None or self.tail.moved or self.anyway.passed


class Outlook:
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

    def refresh(self, positions: Mapping[TopicName, MessageId]) -> list[TopicName]:
        """Ask what is due, and return the partitions that are gone.

        A broker that does not answer is logged, and asked again by the next call: an exception would end the
        query. Until it answers, its partitions are as they were.

        Args:
            positions: up to where each partition is taken.

        Raises:
            PulsarError: the broker refuses the answer.
        """
        due = [topic for topic, view in self._views.items() if view.due]
        gone = []
        for topic, answer in self._ask(due).items() if due else ():
            if isinstance(answer, TopicNotFoundError):
                gone.append(topic)
            elif isinstance(answer, PulsarError):
                if not (answer.retriable or isinstance(answer, DeadlineError)):
                    raise answer
                _log.warning("the end of a topic is not known now, it is asked again: %s", answer)
            else:
                self._on_answer(topic, answer)
                self._views[topic].last = answer.last
        for topic in due:
            self._views[topic].known = Deadline(_KNOWN_FOR)
        self._watch([topic for topic in due if topic not in gone], positions)
        return gone

    def _watch(self, topics: Iterable[TopicName], positions: Mapping[TopicName, MessageId]) -> None:
        """Give tails to what is read to its end for a while, and take them from what is not."""
        idle, busy = [], []
        for topic in topics:
            view = self._views[topic]
            if view.tail is not None:
                if view.tail.is_chunk:
                    self._on_chunk(topic)
                # It has done its work, or may have missed something: another begins where the end is now.
                busy.append(view)
            if view.last.entry >= 0 and positions.get(topic, view.last) < view.last.whole_entry:
                view.idle = None
            elif view.idle is None:
                view.idle = Deadline(_IDLE_AFTER)
            elif view.idle.passed:
                idle.append(topic)
        self._close(busy)
        self._open(idle)

    def _open(self, topics: list[TopicName]) -> None:
        def open_tail(topic: TopicName) -> Tail:
            return Tail(self._client, topic, self._views[topic].last.whole_entry)

        tails = together([partial(open_tail, topic) for topic in topics]) if topics else []
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
            together([view.tail.close for view in closing if view.tail is not None])
        for view in closing:
            view.tail = None
