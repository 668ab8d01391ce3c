"""Message ids and topic names: text forms and order."""

import pickle
import re
import warnings
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import OptionError, UnsupportedError
from pulsar_spark.ids import MessageId, TopicName, TopicPattern
from tests.loops import for_each

LARGEST = 2**63 - 1
numbers = st.integers(0, 4) | st.integers(0, LARGEST)
ids = st.builds(
    MessageId,
    numbers,
    st.integers(-1, 4) | st.integers(-1, LARGEST),
    st.integers(-1, 4) | st.integers(-1, 2**31 - 1),
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("0:0", (0, 0, -1)),
        ("12:-1", (12, -1, -1)),
        ("12:34", (12, 34, -1)),
        ("12:34:0", (12, 34, 0)),
        ("12:34:56", (12, 34, 56)),
        ("12:34:-1", (12, 34, -1)),
        (f"{LARGEST}:{LARGEST}", (LARGEST, LARGEST, -1)),
    ],
)
def test_message_id_text(text, parts):
    message_id = MessageId.parse(text)
    assert (message_id.ledger, message_id.entry, message_id.batch_index) == parts
    assert str(message_id) == ("12:34" if text == "12:34:-1" else text)


@for_each(
    "text",
    [
        *("", "1", "1:", ":1", "1:2:", "1:2:3:4", "a:1", "1:a", "-2:1", "1:-2", "1:2:-2", "1.0:2"),
        *("+1:2", "0x1:2", " 1:2", "1:2 ", "1:2\n", "1: 2", "1_0:2", "latest", "1,2"),
    ],
)
def test_what_is_no_message_id(text):
    with pytest.raises(OptionError) as caught:
        MessageId.parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", [f"{2**64}:0", f"0:{2**63}", f"1:1:{2**31}", "9" * 5000 + ":0"])
def test_numbers_that_no_ledger_has_are_refused(text):
    with pytest.raises(OptionError):
        MessageId.parse(text)


@given(ids)
def test_message_id_text_round_trip(message_id):
    assert MessageId.parse(str(message_id)) == message_id
    assert pickle.loads(pickle.dumps(message_id)) == message_id


def test_message_ids_in_order():
    ordered = [
        MessageId(-1, -1),
        MessageId(0, -1),
        MessageId(0, 0, 0),
        MessageId(0, 0, 1),
        MessageId(0, 0, 2**31 - 1),
        MessageId(0, 0),
        MessageId(0, 1, 0),
        MessageId(0, 1),
        MessageId(1, -1),
        MessageId(1, 0),
        MessageId(LARGEST, LARGEST),
    ]
    shuffled = ordered[1::2] + ordered[::2]
    assert sorted(shuffled) == ordered
    assert all(a < b for a, b in pairwise(ordered))


@given(ids, ids, ids)
def test_message_ids_are_totally_ordered(a, b, c):
    assert (a < b) + (a == b) + (a > b) == 1
    assert (a <= b) == (a < b or a == b)
    assert (a >= b) == (b <= a)
    assert (a < b) == (b > a)
    assert not (a < b and b < c) or a < c
    assert (a == b) == ((a.ledger, a.entry, a.batch_index) == (b.ledger, b.entry, b.batch_index))
    assert a != b or hash(a) == hash(b)


entries = st.builds(MessageId, numbers, numbers)


@given(ids)
def test_the_whole_entry_is_after_each_of_its_messages_and_before_the_next_entry(message_id):
    whole = message_id.whole_entry
    assert message_id <= whole
    assert (message_id == whole) == (message_id.batch_index == -1)
    assert whole.whole_entry == whole
    assert whole < MessageId(message_id.ledger, message_id.entry + 1, 0) < message_id.next_entry


@given(ids)
def test_everything_is_between_the_earliest_and_the_latest_position(message_id):
    assert MessageId.EARLIEST < message_id <= MessageId.LATEST
    assert MessageId.EARLIEST.next_entry == MessageId.EARLIEST
    assert not MessageId.EARLIEST.is_entry


@given(entries)
def test_the_next_entry_and_the_previous_one_are_inverse(entry):
    assert entry.next_entry.previous == entry
    assert entry.previous.next_entry == entry
    assert entry.previous < entry < entry.next_entry


@given(entries, st.integers(1, 2**31 - 1))
def test_the_message_before_another_one_in_its_batch(entry, index):
    message = MessageId(entry.ledger, entry.entry, index)
    assert message.previous == MessageId(entry.ledger, entry.entry, index - 1)
    assert MessageId(entry.ledger, entry.entry, 0).previous == entry.previous


@given(ids.filter(lambda each: each.is_entry or each.batch_index == -1))
def test_only_whole_entries_are_before_a_position(message_id):
    last = message_id.last_whole_entry
    assert last.batch_index == -1
    assert last <= message_id < last.next_entry.next_entry
    assert last == (message_id if message_id.batch_index == -1 else message_id.whole_entry.back(1))


@given(entries, st.integers(0, 5) | numbers)
def test_going_back_stays_within_the_ledger(entry, count):
    back = entry.back(count)
    assert entry.ledger_start <= back <= entry
    assert entry.entries_since(back) == min(count, entry.entry + 1)
    assert not entry.ledger_start.is_entry
    assert entry.is_entry


@given(entries, entries)
def test_entries_are_counted_within_one_ledger(one, other):
    count = one.entries_since(other)
    assert (count is None) == (one.ledger != other.ledger)
    assert count is None or ((count > 0) == (one > other) and count == -other.entries_since(one))


@pytest.mark.parametrize(
    ("here", "previous", "next_entry", "last_whole_entry"),
    [
        ("12:34", "12:33", "12:35", "12:34"),
        ("12:34:0", "12:33", "12:35", "12:33"),
        ("12:34:5", "12:34:4", "12:35", "12:33"),
        ("12:0", "12:-1", "12:1", "12:0"),
        ("12:0:0", "12:-1", "12:1", "12:-1"),
        ("12:-1", "12:-1", "12:0", "12:-1"),
        ("-1:-1", "-1:-1", "-1:-1", "-1:-1"),
    ],
)
def test_the_places_around_a_message(here, previous, next_entry, last_whole_entry):
    message_id = MessageId.parse(here)
    assert message_id.previous == MessageId.parse(previous)
    assert message_id.next_entry == MessageId.parse(next_entry)
    assert message_id.last_whole_entry == MessageId.parse(last_whole_entry)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("t", "persistent://public/default/t"),
        ("a/b/t", "persistent://a/b/t"),
        ("persistent://a/b/t", "persistent://a/b/t"),
        ("  persistent://a/b/t ", "persistent://a/b/t"),
        ("a-1=2:3.4_5/b/t u", "persistent://a-1=2:3.4_5/b/t u"),
    ],
)
def test_topic_name_text(text, full):
    name = TopicName.parse(text)
    assert str(name) == full
    assert TopicName.parse(str(name)) == name


@for_each(
    "text",
    [
        *("", "  ", "a/b", "a/b/", "/b/t", "a//t", "persistent://", "persistent://t"),
        *("persistent://a/b", "non-persistent://a/b/t", "http://a/b/t", "://a/b/t", "a b/c/t"),
        *("a/b*/t", "persistent://a\n/b/t", "half a character: \ud83d", "two\nlines", "red: \x1b[31m"),
        *("a/b/tab\there", "nul \x00", "new line of old: \x85."),
        *("another separator: \u2028.", "backwards: \u202egnp.exe"),
    ],
)
def test_what_is_no_topic_name(text):
    with pytest.raises(OptionError) as caught:
        TopicName.parse(text)
    assert repr(text) in str(caught.value)


def test_what_is_wrong_with_a_topic_name_is_said():
    wrong = {
        "persistent://t": "tenant and namespace are missing",
        "b/t": "tenant or namespace is missing before 't', or the topic after it",
        "a/b/": "the topic is missing",
        "": "the topic is missing",
        "/b/t": "the tenant is empty",
        "a//t": "the namespace is empty",
        "a b/c/t": "the tenant 'a b' may have only letters, digits and _-=:.",
        "a/b*/t": "the namespace 'b*' may have only",
        "two\nlines": "it contains characters that cannot be shown",
    }
    for text, why in wrong.items():
        with pytest.raises(OptionError) as caught:
            TopicName.parse(text)
        assert f"{text!r} is not a topic name: {why}" in str(caught.value)


@pytest.mark.parametrize("parse", [TopicName.parse, TopicPattern.parse])
@pytest.mark.parametrize("domain", ["copy-persistent", "Persistent", "http", "", "non-persistent"])
def test_the_text_before_the_name_is_persistent(parse, domain):
    with pytest.raises(OptionError) as caught:
        parse(f"{domain}://a/b/t")
    if domain == "non-persistent":
        assert "Only persistent topics are supported" in str(caught.value)
    else:
        assert caught.value.what == f"the text before :// is {domain!r} in '{domain}://a/b/t'"
        assert caught.value.advice.startswith("It must be persistent: write persistent://")


parts = st.text("abz09-=:._", min_size=1, max_size=9)
locals_ = st.text("abz09-=:._ é", min_size=1, max_size=12).filter(lambda text: text == text.strip())


@given(parts, parts, locals_)
def test_topic_name_round_trip(tenant, namespace, local):
    name = TopicName("persistent", tenant, namespace, local)
    assert TopicName.parse(f"{tenant}/{namespace}/{local}") == name
    assert TopicName.parse(f"persistent://{tenant}/{namespace}/{local}") == name
    assert TopicName.parse(str(name)) == name


@given(parts, locals_, st.integers(0, 10_000))
def test_partitions_have_a_number_and_a_base(namespace, local, number):
    topic = TopicName("persistent", "a", namespace, local)
    partition = topic.of_partition(number)
    assert partition.local == f"{local}-partition-{number}"
    assert partition.partition == number
    assert partition.base == topic
    assert TopicName.parse(str(partition)) == partition


@pytest.mark.parametrize(
    "local",
    ["t", "t-partition-", "-partition-3", "t-partition-x", "t-partition-3x", "t-partition--1", "partition-3"],
)
def test_what_is_no_partition(local):
    topic = TopicName("persistent", "a", "b", local)
    assert topic.partition == -1
    assert topic.base == topic


@pytest.mark.parametrize("number", ["01", "000", "٣", "9" * 5000])
def test_a_number_that_the_broker_would_not_write_names_no_partition(number):
    # base.of_partition(partition) would be another topic than the one that was named.
    topic = TopicName("persistent", "a", "b", f"t-partition-{number}")
    assert topic.partition == -1
    assert topic.base == topic


COMMIT_LOG = "spark-transactions-7c9e6679-7425-40de-944b-e07fc1f90ae7"


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("t.*", ["t", "topic", "t-partition-3"], ["a/b/t", "other", "xt"]),
        ("a/b/t", ["a/b/t", "a/b/t-partition-0"], ["t", "a/c/t", "a/b/t2"]),
        ("persistent://a/b/(x|y)", ["a/b/x", "a/b/y"], ["a/b/xy"]),
        (".*", ["t"], ["__change_events", "__change_events-partition-0", "t-s__transaction_pending_ack"]),
        (
            ".*",
            ["spark-transactions-of-mine", "spark-transactions-"],
            [COMMIT_LOG, f"{COMMIT_LOG}-partition-0"],
        ),
    ],
)
def test_topic_patterns(text, matching, others):
    pattern = TopicPattern.parse(text)
    assert all(pattern.matches(TopicName.parse(name)) for name in matching)
    assert not any(pattern.matches(TopicName.parse(name)) for name in others)
    assert TopicPattern.parse(str(pattern)) == pattern
    assert pickle.loads(pickle.dumps(pattern)) == pattern


@for_each(
    ("text", "regex"),
    [
        ("orders", "public/default/orders(-p.*)?"),
        ("a/b/orders-eu", "a/b/orders-eu(-p.*)?"),
        (r"a/b/orders\.eu", "a/b/orders.eu(-p.*)?"),
        ("orders-.*", "public/default/orders-.*"),
        ("orders.*", "public/default/orders.*"),
        ("orders*", "public/default/order.*"),
        ("orders?x", "public/default/order.*"),
        ("orders{2}", "public/default/order.*"),
        ("orders+", "public/default/orders.*"),
        ("orders(eu|us)", None),
        ("a|b", None),
        (".*", None),
        ("(?i)orders", None),
        ("[ab]c", None),
        (r"\d", None),
        ("o*", None),
        ("o" * 60, "public/default/" + "o" * 33 + ".*"),
        ("a/" + "n" * 60 + "/t", None),
        ("orders$", "public/default/orders.*"),
        ("a b", "public/default/a.*"),
    ],
)
def test_what_a_pattern_is_for_brokers(text, regex):
    assert TopicPattern.parse(text).broker_regex == regex
    assert regex is None or len(regex) <= 50


@given(
    st.text("ab-.", min_size=1, max_size=4),
    st.text("ab-._*+?{}[]()|\\$^", max_size=5),
    st.booleans(),
    st.integers(-1, 12),
)
def test_brokers_give_all_that_a_pattern_means(local, regex, is_named, partition):
    topic = TopicName("persistent", "p", "d", local)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # Python's, of sets within sets
            pattern = TopicPattern.of(topic) if is_named else TopicPattern.parse(f"p/d/{regex}")
    except OptionError:
        return
    part = topic if partition < 0 else topic.of_partition(partition)
    if pattern.matches(part) and pattern.broker_regex is not None:
        assert re.fullmatch(pattern.broker_regex, f"p/d/{part.local}")


def test_the_pattern_of_one_topic():
    topic = TopicName.parse("a/b/t.x")
    pattern = TopicPattern.of(topic.of_partition(3))
    assert pattern.matches(topic)
    assert pattern.matches(topic.of_partition(0))
    assert not pattern.matches(TopicName.parse("a/b/tyx"))


@pytest.mark.parametrize(
    "text", ["persistent://a/b/t", "persistent://a/b/t-partition-0", "persistent://a/b/x/y"]
)
def test_a_name_that_a_broker_tells(text):
    assert str(TopicName.found(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("non-persistent://a/b/t", "t", "persistent://a/b/t ", "persistent://a/b/", "://"),
        *("", "persistent://a/b/t\nu"),
    ],
)
def test_a_name_that_cannot_be_read(text):
    assert TopicName.found(text) is None


def test_a_pattern_of_scalable_topics():
    """It includes their segments, and the partitions that they had before they were scalable."""
    pattern = TopicPattern.parse("topic://a/b/t.*")
    topic = TopicName.parse("topic://a/b/tx", scalable=True)
    own = [topic, topic.segment(0, 0xFFFF, 3), TopicName.parse("a/b/tx-partition-0")]
    assert all(map(pattern.matches, own))
    assert not pattern.matches(TopicName.parse("topic://a/b/u", scalable=True))
    assert not pattern.matches(TopicName.parse("topic://a/c/t", scalable=True))
    assert not any(TopicPattern.parse("a/b/t.*").matches(each) for each in own[:2])
    assert str(pattern) == "topic://a/b/t.*"
    assert TopicPattern.parse(str(pattern)) == pattern


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a/b",
        "a/b/",
        "persistent://t",
        "topic://t",
        "topic://a/b/",
        "non-persistent://a/b/c",
        ".*/b/t",
        "a/b/(",
        "*",
    ],
)
def test_bad_topic_patterns(text):
    with pytest.raises(OptionError):
        TopicPattern.parse(text)


def test_a_scalable_topic_is_one_only_where_it_may_be():
    text = "topic://tenant/ns/st"
    topic = TopicName.parse(text, scalable=True)
    assert str(topic) == text
    assert (topic.is_scalable, topic.is_segment, topic.partition, topic.base) == (True, False, -1, topic)
    with pytest.raises(
        UnsupportedError, match=r"can be read and written.*topic://tenant/ns/st.*persistent://"
    ):
        TopicName.parse(text)
    assert TopicName.found("topic://tenant/ns/st") is None


def test_a_segment_has_a_number_hashes_and_a_base():
    topic = TopicName.parse("topic://tenant/ns/st-partition-3", scalable=True)
    segment = topic.segment(0x8000, 0xBFFF, 12)
    assert str(segment) == "segment://tenant/ns/st-partition-3/8000-bfff-12"
    assert (segment.partition, segment.part, segment.base) == (12, "8000-bfff-12", topic)
    assert (segment.is_scalable, segment.is_segment, segment.scalable) == (False, True, topic)
    assert topic.of_part("8000-bfff-12") == segment


@pytest.mark.parametrize("part", ["0", "-1", "8000-bfff", "8000-BFFF-1", "8000-bfff-01", "done"])
def test_what_is_no_segment(part):
    with pytest.raises(ValueError, match=part):
        TopicName.parse("topic://tenant/ns/st", scalable=True).of_part(part)


def test_a_partition_is_its_number_or_none():
    topic = TopicName.parse("t")
    assert topic.part == "-1"
    assert topic.of_partition(3).part == "3"
    assert topic.of_part("3") == topic.of_partition(3)
    assert topic.of_part("-1") == topic
    assert str(topic.of_partition(3).scalable) == "topic://public/default/t"
