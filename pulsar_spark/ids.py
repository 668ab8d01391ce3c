"""Names of things in Pulsar: message ids and topic names. Values only, no I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pulsar_spark.errors import OptionError, UnsupportedError, is_shown

_NO_BATCH = 1 << 31
_TEXT = re.compile(r"(-1|[0-9]{1,19}):(-1|[0-9]{1,19})(?::(-1|[0-9]{1,10}))?")
_MAX_ID = (1 << 63) - 1
_MAX_INDEX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class MessageId:
    """Position in a topic partition: ``ledger``, ``entry`` (-1: before the ledger's first), ``batch_index``.

    ``batch_index`` -1 means the whole entry, and sorts after every index of the entry, because a position
    includes all earlier messages.
    """

    EARLIEST: ClassVar[MessageId]
    LATEST: ClassVar[MessageId]

    ledger: int
    entry: int
    batch_index: int = -1

    # Not total_ordering, which is slower, because a planner compares thousands of positions at each trigger.

    def __lt__(self, other: MessageId) -> bool:
        return self._key() < other._key()

    def __le__(self, other: MessageId) -> bool:
        return self._key() <= other._key()

    def __gt__(self, other: MessageId) -> bool:
        return self._key() > other._key()

    def __ge__(self, other: MessageId) -> bool:
        return self._key() >= other._key()

    def _key(self) -> tuple[int, int, int]:
        return self.ledger, self.entry, self.batch_index if self.batch_index >= 0 else _NO_BATCH

    def __str__(self) -> str:
        text = f"{self.ledger}:{self.entry}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"

    @property
    def is_entry(self) -> bool:
        """Whether an entry or a message has this position; False for EARLIEST and ``ledger_start``."""
        return self.entry >= 0

    @property
    def whole_entry(self) -> MessageId:
        """Returns the position after the last message of this entry."""
        return MessageId(self.ledger, self.entry)

    @property
    def next_entry(self) -> MessageId:
        """Returns the next entry after this position in the same ledger; EARLIEST for EARLIEST."""
        return self if self.ledger < 0 else MessageId(self.ledger, self.entry + 1)

    @property
    def last_whole_entry(self) -> MessageId:
        """Returns this entry; the previous entry for a position in a batch, which is not fully read."""
        return self if self.batch_index < 0 else self.whole_entry.back(1)

    @property
    def previous(self) -> MessageId:
        """Returns the position directly before this message; a read from there begins with this message."""
        if self.batch_index > 0:
            return MessageId(self.ledger, self.entry, self.batch_index - 1)
        return MessageId(self.ledger, max(self.entry, 0) - 1)

    @property
    def ledger_start(self) -> MessageId:
        """Returns the position before the first entry of this ledger."""
        return MessageId(self.ledger, -1)

    def back(self, entries: int) -> MessageId:
        """Returns the position ``entries`` entries earlier in this ledger, at most back to its start."""
        return MessageId(self.ledger, max(self.entry - entries, -1))

    def entries_since(self, start: MessageId) -> int | None:
        """Returns the number of entries in ``(start, self]``; None if the ledgers differ."""
        return self.entry - start.entry if self.ledger == start.ledger else None

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Parses ``ledger:entry[:batch]``, each -1 or unsigned; raises OptionError for any other text."""
        match = _TEXT.fullmatch(text)
        ids = [int(part or -1) for part in match.groups()] if match else []
        if not ids or max(ids[:2]) > _MAX_ID or ids[2] > _MAX_INDEX:
            raise OptionError(
                f"{text[:100]!r} is not a message id", advice="Write it as ledger:entry[:batch]"
            )
        return cls(*ids)


MessageId.EARLIEST = MessageId(-1, -1)
MessageId.LATEST = MessageId(_MAX_ID, _MAX_ID)


# The commit log topic of a query (delivery=transactional) is named by this prefix and the query's id.
COMMIT_LOG_PREFIX = "spark-transactions-"
_COMMIT_LOG = re.compile(COMMIT_LOG_PREFIX + r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# Brokers refuse longer regular expressions (subscriptionPatternMaxLength).
_MAX_BROKER_REGEX = 50
_OR_PARTITION = "(-p.*)?"
# The literal start of a regular expression: letters, digits, underscores, hyphens and escaped characters.
_LITERAL = re.compile(r"((?:[A-Za-z0-9_]|-|\\[-._])+)")

_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,8})")
_PART = re.compile(r"[-=:.\w]+")
# A segment's name within its scalable topic: range of hashes, and number.
_SEGMENT = re.compile(r"[0-9a-f]{4}-[0-9a-f]{4}-(0|[1-9][0-9]{0,17})")
_SCALABLE, _SEGMENT_DOMAIN = "topic", "segment"


class TxnId(NamedTuple):
    """A transaction.

    ``most_bits`` is the coordinator's number, ``least_bits`` the transaction's number there.
    """

    most_bits: int
    least_bits: int

    def __str__(self) -> str:
        return f"({self.most_bits},{self.least_bits})"


class TopicName(NamedTuple):
    """The parts of a full topic name, ``domain://tenant/namespace/local``.

    A scalable topic (``topic://``) has segments instead of partitions. The local name of a segment is
    ``topic/0000-7fff-0``.
    """

    domain: str
    tenant: str
    namespace: str
    local: str

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local}"

    @classmethod
    def parse(cls, text: str, *, scalable: bool = False) -> TopicName:
        """Parses a short or full name (``t``, ``tenant/ns/t``, ``persistent://tenant/ns/t``).

        ``scalable``: True: scalable topics (``topic://``) are accepted, too.

        Raises:
            OptionError: the name is malformed, or not persistent, because Spark must be able to read a range
                again.
            UnsupportedError: the topic is scalable, and ``scalable`` is false.
        """
        domain, parts = _split(text)
        if domain == "non-persistent":
            raise OptionError(
                f"topic {text!r} is not persistent", advice="Only persistent topics are supported"
            )
        if domain != _SCALABLE:
            _check_domain(domain, text)
        elif not scalable:
            raise UnsupportedError(
                "a scalable topic can be read and written, and not be used otherwise",
                topic=text[:500],
                advice="Name a topic persistent://...",
            )
        why = _why_invalid(parts)
        if why is not None:
            raise OptionError(
                f"{text!r} is not a topic name: {why}",
                advice="Write persistent://tenant/namespace/topic, or the topic alone if it is in "
                "public/default",
            )
        return cls(domain, *parts)

    @classmethod
    def found(cls, text: str, *, scalable: bool = False) -> TopicName | None:
        """Parses a full name from a broker; None if it is invalid or not in its full form."""
        try:
            topic = cls.parse(text, scalable=scalable)
        except (OptionError, UnsupportedError):
            return None
        return topic if str(topic) == text else None

    @property
    def partition(self) -> int:
        """Returns the number of the partition or segment; -1 for a whole topic."""
        if self.is_segment:
            return int(self.local.rpartition("-")[2])
        if self.is_scalable:
            return -1
        match = _PARTITION.fullmatch(self.local)
        return int(match[2]) if match else -1

    @property
    def base(self) -> TopicName:
        """Returns the topic of a partition or segment; any other name unchanged."""
        if self.is_segment:
            return self._replace(domain=_SCALABLE, local=self.local.rpartition("/")[0])
        if self.is_scalable:
            return self
        match = _PARTITION.fullmatch(self.local)
        return self._replace(local=match[1]) if match else self

    def of_partition(self, number: int) -> TopicName:
        """Returns the name of one partition of this topic."""
        return self._replace(local=f"{self.local}-partition-{number}")

    @property
    def is_scalable(self) -> bool:
        """Whether this is a scalable topic (``topic://``)."""
        return self.domain == _SCALABLE

    @property
    def is_segment(self) -> bool:
        """Whether this is a segment of a scalable topic (``segment://``)."""
        return self.domain == _SEGMENT_DOMAIN

    @property
    def scalable(self) -> TopicName:
        """Returns the name ``topic://...`` of a segment's topic, or of this topic after a migration."""
        return self.base._replace(domain=_SCALABLE)

    def segment(self, first_hash: int, last_hash: int, number: int) -> TopicName:
        """Returns the name of this scalable topic's segment for keys with these hashes, both included."""
        local = f"{self.local}/{first_hash:04x}-{last_hash:04x}-{number}"
        return self._replace(domain=_SEGMENT_DOMAIN, local=local)

    @property
    def part(self) -> str:
        """Returns the partition number as text (``-1``: none), or a segment's name, as ``0000-7fff-0``."""
        return self.local.rpartition("/")[2] if self.is_segment else str(self.partition)

    def of_part(self, part: str) -> TopicName:
        """Returns the partition or segment with this :attr:`part`; raises ValueError for other texts."""
        if not self.is_scalable:
            number = int(part)
            return self if number < 0 else self.of_partition(number)
        if not _SEGMENT.fullmatch(part):
            raise ValueError(part)
        return self._replace(domain=_SEGMENT_DOMAIN, local=f"{self.local}/{part}")


def _split(text: str) -> tuple[str, list[str]]:
    """Returns the domain of a short or full name, and its parts: tenant, namespace and the rest."""
    domain, separator, rest = text.strip().partition("://")
    if not separator:
        domain, rest = "persistent", text.strip()
    parts = rest.split("/", 2)
    if len(parts) == 1 and not separator:
        parts = ["public", "default", *parts]
    return domain, parts


def _why_invalid(parts: list[str]) -> str | None:
    """Returns the fault in the parts of a topic's name; None for a valid name."""
    if len(parts) == 1:
        return "tenant and namespace are missing"
    if len(parts) == 2:
        return f"tenant or namespace is missing before {parts[1]!r}, or the topic after it"
    if parts[0] == "persistent:":
        return "a slash is missing after persistent:"
    for what, part in zip(("tenant", "namespace"), parts, strict=False):
        if not part:
            return f"the {what} is empty"
        if not _PART.fullmatch(part):
            return f"the {what} {part!r} may have only letters, digits and _-=:."
    if not parts[2]:
        return "the topic is missing"
    # Any producer may have chosen the name, so it must not add lines to logs.
    return None if is_shown(parts[2]) else "it contains characters that cannot be shown"


def _check_domain(domain: str, text: str) -> None:
    if domain != "persistent":
        raise OptionError(
            f"the text before :// is {domain!r} in {text!r}",
            advice="It must be persistent: write persistent://tenant/namespace/topic, or a name without ://",
        )


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """All topics of one namespace whose local name a regular expression matches in full.

    Attributes:
        regex: regular expression in Python's dialect, for local names of topics without ``-partition-N``.
    """

    tenant: str
    namespace: str
    regex: re.Pattern[str]
    is_scalable: bool = False

    def __str__(self) -> str:
        domain = _SCALABLE if self.is_scalable else "persistent"
        return f"{domain}://{self.tenant}/{self.namespace}/{self.regex.pattern}"

    @classmethod
    def parse(cls, text: str) -> TopicPattern:
        """Parses ``regex`` (in public/default), ``tenant/ns/regex`` or ``persistent://tenant/ns/regex``.

        ``topic://tenant/ns/regex`` is for scalable topics.

        Raises OptionError for any other form, an invalid regular expression, or another domain.
        """
        domain, parts = _split(text)
        if domain == "non-persistent":
            raise OptionError(
                f"the pattern {text!r} is not for persistent topics",
                advice="Only persistent topics are supported",
            )
        if domain != _SCALABLE:
            _check_domain(domain, text)
        if len(parts) != 3 or not all(_PART.fullmatch(part) for part in parts[:2]) or not parts[2]:
            raise OptionError(
                f"{text!r} is not a pattern for topics within one namespace",
                advice="Write persistent://tenant/namespace/regex; only the topic's local name may be a "
                "regular expression",
            )
        try:
            return cls(parts[0], parts[1], re.compile(parts[2]), is_scalable=domain == _SCALABLE)
        except (re.error, RecursionError, OverflowError) as error:
            raise OptionError(
                f"{text[:200]!r} contains an invalid regular expression: {error}",
                advice="Use Python's syntax of regular expressions, where .* is any text",
            ) from None

    @classmethod
    def of(cls, topic: TopicName) -> TopicPattern:
        """Returns the pattern for one topic and its partitions."""
        return cls(topic.tenant, topic.namespace, re.compile(re.escape(topic.base.local)))

    @property
    def broker_regex(self) -> str | None:
        """Returns a regular expression for the broker's topic listing; it may match further topics.

        Brokers limit its length and use another dialect, so it has only the pattern's literal start and
        ``.*``, or ``(-p.*)?`` for a literal name. None: no literal start, so the caller lists all topics.
        """
        found = _LITERAL.match(self.regex.pattern)
        if found is None or "|" in self.regex.pattern:
            return None
        literal, rest = found[1].replace("\\", ""), self.regex.pattern[found.end() :]
        is_whole = not rest
        if rest[:1] in ("*", "?", "{"):
            literal = literal[:-1]
        namespace = f"{self.tenant}/{self.namespace}/"
        if is_whole and len(namespace + literal + _OR_PARTITION) <= _MAX_BROKER_REGEX:
            return namespace + literal + _OR_PARTITION
        head = (namespace + literal)[: _MAX_BROKER_REGEX - len(".*")]
        return f"{head}.*" if len(head) > len(namespace) else None

    def matches(self, topic: TopicName) -> bool:
        """Whether the pattern includes ``topic``, or the topic of this partition or segment.

        A pattern for scalable topics also includes classic partitions, because their topic may have been
        migrated. No pattern includes Pulsar's internal topics (``__change_events``, pending acknowledgements)
        or the commit logs of this package's sink.
        """
        local = topic.base.local
        is_pulsars = local.startswith("__") or local.endswith("__transaction_pending_ack")
        if is_pulsars or _COMMIT_LOG.fullmatch(local):
            return False
        if topic.base.is_scalable and not self.is_scalable:
            return False
        same_place = (topic.tenant, topic.namespace) == (self.tenant, self.namespace)
        return same_place and self.regex.fullmatch(local) is not None
