import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import OptionError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.positions import (
    AtTime,
    Positions,
    PositionWord,
    check_order,
    parse_offsets,
    parse_times,
)
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.loops import for_each

T, U = TopicName.parse("t"), TopicName.parse("u")
T0, T1, U2 = T.of_partition(0), T.of_partition(1), U.of_partition(2)
MOST = 2**63 - 1


def start(text: str) -> Positions:
    return parse_offsets("startingOffsets", text, end=False)


def end(text: str) -> Positions:
    return parse_offsets("endingOffsets", text, end=True)


def times(text: str) -> Positions:
    return parse_times("startingTime", text)


@pytest.mark.parametrize("text", ["earliest", "latest", "subscription", "LATEST"])
def test_a_word_is_for_all_partitions(text):
    assert start(text).of([T0, U]) == {T0: PositionWord(text.lower()), U: PositionWord(text.lower())}


@pytest.mark.parametrize(
    ("text", "begins", "ends"),
    [
        ("5:3", MessageId(5, 2), MessageId(5, 3)),
        ("5:0", MessageId(5, -1), MessageId(5, 0)),
        ("5:3:2", MessageId(5, 3, 1), MessageId(5, 3, 2)),
        ("5:3:0", MessageId(5, 2), MessageId(5, 3, 0)),
        ("5:3:-1", MessageId(5, 2), MessageId(5, 3)),
        ("5:-1", MessageId(5, -1), MessageId(5, -1)),
        ("earliest", PositionWord.EARLIEST, PositionWord.EARLIEST),
        ("Latest", PositionWord.LATEST, PositionWord.LATEST),
        ("-1:-1", PositionWord.EARLIEST, PositionWord.EARLIEST),
        (f"{MOST}:{MOST}", PositionWord.LATEST, PositionWord.LATEST),
    ],
)
def test_starts_and_ends_are_inclusive(text, begins, ends):
    given = json.dumps({"t": {"0": text}})
    assert start(given).of([T0]) == {T0: begins}
    assert end(given).of([T0]) == {T0: ends}


def test_names_are_short_or_full_and_numbers_those_of_partitions():
    text = (
        '{"persistent://public/default/t": {"0": "1:1", "1": "2:2"}, '
        '"u": {"-1": "3:3"}, "v-partition-2": {"%s": "4:4"}}'
    )
    v2 = TopicName.parse("v-partition-2")
    for number in ("-1", "2"):
        found = end(text % number).of([T0, T1, U, v2])
        assert list(found.values()) == [MessageId(n, n) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    ("fields", "position"),
    [
        ({"ledgerId": 300, "entryId": 200}, MessageId(300, 199)),
        ({"ledgerId": 300, "entryId": 200, "partition": 0, "batch_index": 7}, MessageId(300, 200, 6)),
        ({"ledgerId": 2**64 - 1, "entryId": 2**64 - 1, "partition": -1}, PositionWord.EARLIEST),
        ({"ledgerId": MOST, "entryId": MOST}, PositionWord.LATEST),
    ],
)
def test_the_jvm_connectors_bytes(fields, position, signed):
    data = pb.MessageIdData(**fields).SerializeToString()
    values = [byte - 256 if signed and byte > 127 else byte for byte in data]
    assert start(json.dumps({str(T0): values, "u": [8, 5, 16, 6]})).of([T0, U]) == {
        T0: position,
        U: MessageId(5, 5),
    }


def shown(topics, **more):
    """The position of a query as Spark shows it."""
    return json.dumps({"subscription": "spark-pulsar-1", "topics": topics, **more})


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("5:3", MessageId(5, 3)),
        ("5:3:2", MessageId(5, 3, 2)),
        ("5:-1", MessageId(5, -1)),
        ("-1:-1", PositionWord.EARLIEST),
    ],
)
def test_the_position_of_a_query_is_what_it_has_taken(text, position):
    for parse in (start, end):
        found = parse(shown({str(T): {"0": text}, str(U): {"-1": "7:7"}}))
        assert found.of([T0, U]) == {T0: position, U: MessageId(7, 7)}


@given(
    st.dictionaries(
        st.sampled_from([T0, T1, U]),
        st.builds(MessageId, st.integers(0, 2**40), st.integers(0, 2**40), st.integers(-1, 2**20)),
        min_size=1,
    )
)
def test_what_a_query_writes_down_is_where_another_begins(positions):
    offset = Offsets("a subscription", positions)
    assert start(json.dumps(offset.to_json())).of(positions) == positions


def test_what_a_query_did_not_know_came_later():
    found = start(shown({str(T): {"0": "5:3"}}))
    assert found.of([T0, T1, U]) == {T0: MessageId(5, 3), T1: PositionWord.EARLIEST, U: PositionWord.EARLIEST}
    assert start(shown({})).of([T0]) == {T0: PositionWord.EARLIEST}
    with pytest.raises(
        OptionError, match=f"names a topic or partition that this query does not read; topic {T0}"
    ):
        found.of([U])


def test_topics_of_these_names_are_topics():
    found = start('{"subscription": {"-1": "1:1"}, "topics": {"-1": "2:2"}}')
    assert found.of([TopicName.parse("subscription"), TopicName.parse("topics")])
    with pytest.raises(OptionError, match="this query does not read"):
        found.of([T])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (shown({"t": {"0": "1:1"}}, epoch=1), "holds epoch, which this version of pulsar_spark cannot read"),
        (shown({"t": {"0": "1"}}), "ledger:entry"),
        (shown({"t": {"0": {"end": "1:1"}}}), "ledger:entry"),
        (shown({"t": {"x": "1:1"}}), "is not a partition number"),
        (shown({"t": {"0": "1:1"}, str(T): {"0": "1:1"}}), "names a partition twice"),
        (shown({"t-partition-1": {"-1": "1:1", "1": "2:2"}}), "names a partition twice"),
        (shown([]), "for a topic"),
        (
            '{"topics": {"t": {"0": {"end": "1:1", "backlogEntries": 0}}}, "backlogEntries": 0}',
            "is the latestOffset of a query's progress.*Use the endOffset",
        ),
    ],
)
def test_what_is_no_position_of_a_query(text, said):
    for parse in (start, end):
        with pytest.raises(OptionError, match=said):
            parse(text)


@for_each(
    "text",
    [
        *("", "1:1", "somewhere", "{", "{}", "[]", '{"t": 1}', '{"t": {}}', '{"t": "1:1"}'),
        *('{"t": null}', '{"t": {"0": "1"}}', '{"t": {"0": 1}}', '{"t": {"0": null}}'),
        *('{"t": {"0": "subscription"}}', '{"t": {"first": "1:1"}}', '{"t": {"-2": "1:1"}}'),
        *('{"t": {"00": "1:1"}}', '{"t": {"0": "1:1", "0": "1:2"}}'),
        '{"t": {"0": "1:1"}, "persistent://public/default/t": {"0": "1:1"}}',
        '{"t": {"0": "1:1"}, "t-partition-0": {"-1": "1:1"}}',
        *('{"non-persistent://a/b/c": {"0": "1:1"}}', '{"t": []}', '{"t": [8]}'),
        *('{"t": [8, 1, 16, 256]}', '{"t": [8, 1, 16, true]}'),
        *('{"t": [8, 1, 16, 1.0]}', '{"t": ' * 100_000),
    ],
)
def test_what_is_no_position(text):
    for parse in (start, end):
        with pytest.raises(OptionError) as caught:
            parse(text)
        assert len(str(caught.value)) < 700


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("1:1"),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from("t0") | st.text(), inner),
)


@given(st.text() | json_values.map(json.dumps))
def test_only_option_errors_come_out(text):
    for parse in (start, end, times):
        with suppress(OptionError):
            assert isinstance(parse(text), Positions)


@pytest.mark.parametrize(
    ("text", "match", "named"),
    [
        ('{"t": {"0": "1:1"}}', "has no position for a partition", T1),
        (
            '{"t": {"0": "1:1", "1": "1:1", "2": "1:1"}}',
            "names a topic or partition that this query does not read",
            T.of_partition(2),
        ),
        (
            '{"t": {"0": "1:1", "1": "1:1"}, "u": {"2": "1:1"}}',
            "names a topic or partition that this query does not read",
            U2,
        ),
        ('{"t": {"-1": "1:1"}}', "names a topic or partition that this query does not read", T),
        (
            '{"x": {"0": "1:1"}}',
            "names a topic or partition that this query does not read",
            TopicName.parse("x").of_partition(0),
        ),
        (
            '{"t": {"0": "1:1", "1": "1:1", "-1": "1:1"}}',
            "names a topic or partition that this query does not read",
            T,
        ),
    ],
)
def test_exactly_the_partitions_that_are_read_are_named(text, match, named):
    with pytest.raises(OptionError, match=match) as caught:
        start(text).of([T0, T1])
    assert caught.value.topic == str(named)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01 00:00:01Z", 1000),
        ("1970-01-01T02:00:01+02:00", 1000),
        ("1970-01-01T00:00:01.5Z", 1500),
        ("1970-01-01T00:00:00.0011Z", 2),
        ("1970-01-01T00:00:00.001000000Z", 1),
    ],
)
def test_times(text, ms):
    assert times(text).of([T0]) == {T0: AtTime(ms)}
    assert times(json.dumps({"t": text})).of([T0, T1]) == {T0: AtTime(ms), T1: AtTime(ms)}


def test_times_by_topic_and_by_partition():
    found = times('{"t": 1700000000005, "t-partition-1": 1700000000006, "u": "1970-01-02"}').of([T0, T1, U])
    assert found == {T0: AtTime(1_700_000_000_005), T1: AtTime(1_700_000_000_006), U: AtTime(86_400_000)}


@for_each(
    "text",
    [
        *(
            *("", "-1", "yesterday", "1.5", "9" * 19, "9" * 30, "12:00"),
            *("0001-01-01T00:00:00+14:00", "2024-13-01"),
        ),
        *("{", "{}"),
        '{"t": true}',
        '{"t": 1.5}',
        '{"t": -5}',
        '{"t": {"0": 5}}',
        '{"t": 1700000000005, "public/default/t": 1700000000005}',
    ],
)
def test_what_is_no_time(text):
    with pytest.raises(OptionError):
        times(text)


@pytest.mark.parametrize("value", ["%s", '{"t": %s}', '{"t": "%s"}', '{"t-partition-0": %s}'])
def test_a_time_in_seconds_is_an_error(value):
    with pytest.raises(OptionError) as caught:
        times(value % 1_700_000_000)
    assert str(caught.value).startswith(
        "[PULSAR_OPTION] startingTime has 1700000000, a time before March 1973"
    )
    assert "times are milliseconds since 1970" in caught.value.what
    assert "probably 1700000000000, or ISO-8601" in caught.value.advice
    assert (caught.value.topic is None) == (value == "%s")


@pytest.mark.parametrize(("number", "is_taken"), [(0, True), (1, False), (10**11 - 1, False), (10**11, True)])
def test_numbers_before_1973_are_no_times(number, is_taken):
    if is_taken:
        assert times(str(number)).everywhere == AtTime(number)
    else:
        with pytest.raises(OptionError, match="milliseconds since 1970"):
            times(str(number))


def test_no_time_is_guessed_that_is_too_early_in_seconds_as_well():
    with pytest.raises(OptionError) as caught:
        times("19700")
    assert "probably" not in caught.value.advice


def test_the_time_of_each_topic_is_known():
    with pytest.raises(OptionError, match="has no position for a partition"):
        times('{"t": 1700000000005}').of([T0, U])
    with pytest.raises(OptionError, match="not read"):
        times('{"t": 1700000000005, "u": 1700000000005}').of([T0])


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (start('{"t": {"0": "5:3"}}'), end('{"t": {"0": "5:1"}}')),
        (start('{"t": {"0": "5:3:2"}}'), end('{"t": {"0": "5:3:0"}}')),
        (start('{"t": {"0": "5:3:2"}}'), end('{"t": {"0": "5:3:1"}}')),
        (start('{"t": {"0": "5:3:1"}}'), end('{"t": {"0": "5:3:0"}}')),
        (start('{"t": {"0": "5:3", "1": "latest"}}'), end('{"t": {"0": "6:1", "1": "earliest"}}')),
        (start('{"t": {"0": "latest"}}'), end("earliest")),
        (times("1700000000005"), times('{"t": 1700000000004}')),
        (times('{"t": 1700000000005}'), times('{"t-partition-0": 1700000000004}')),
        (times("1700000000005"), times("1700000000004")),
    ],
)
def test_an_end_before_the_start_is_refused(first, last):
    with pytest.raises(OptionError, match="is before"):
        check_order(first, last)


def test_ends_that_are_not_before_the_start():
    check_order(start('{"t": {"0": "5:3"}}'), end('{"t": {"0": "5:3"}}'))
    check_order(start('{"t": {"0": "5:3"}}'), end('{"t": {"0": "5:2"}}'))
    check_order(start('{"t": {"0": "5:3:0"}}'), end('{"t": {"0": "5:2"}}'))
    check_order(start('{"t": {"0": "5:3:1"}}'), end('{"t": {"0": "5:3:1"}}'))
    shown = '{"subscription": "s", "topics": {"t": {"0": "5:3:1"}}}'
    check_order(start(shown), end(shown))
    check_order(start('{"t": {"0": "5:3"}}'), end('{"u": {"0": "4:1"}}'))
    check_order(start("subscription"), end("earliest"))
    check_order(times("1700000000005"), times('{"t": 1700000000005}'))


@given(st.integers(0, 9), st.integers(0, 9), st.integers(-1, 9))
def test_a_message_is_the_next_after_the_position_before_it(ledger, entry, index):
    first = MessageId(ledger, entry, index)
    before = first.previous
    assert before < first
    assert not any(before < MessageId(ledger, entry, earlier) < first for earlier in range(max(index, 0)))


def test_segments_are_named_by_their_hashes_and_numbers():
    given = '{"topic://public/default/st": {"0000-7fff-1": "16:5", "0000-ffff-0": "done"}}'
    topic = TopicName.parse("topic://public/default/st", scalable=True)
    assert start(given).named == {
        topic.segment(0, 0x7FFF, 1): MessageId(16, 4),
        topic.segment(0, 0xFFFF, 0): PositionWord.LATEST,
    }
    with pytest.raises(OptionError, match=r"'0' is not a segment.*0000-7fff-0"):
        start('{"topic://public/default/st": {"0": "16:5"}}')


def test_only_segments_are_done_and_an_end_is_no_segment_s():
    """Else a typing error in the name of a topic would skip all of it."""
    done = '{"topic://public/default/st": {"0000-ffff-0": "done"}}'
    migrated = (
        '{"persistent://public/default/st": {"0": "done"}, "topic://public/default/st": {"0-1": "1:1"}}'
    )
    migrated = migrated.replace("0-1", "0000-ffff-1")
    legacy = TopicName.parse("st").of_partition(0)
    assert start(migrated).named[legacy] is PositionWord.LATEST
    for shown in (done, migrated):
        text = f'{{"subscription": "s", "topics": {shown}}}'
        for parsed in (start(text), end(text)):
            assert PositionWord.LATEST in parsed.named.values()
    classic = '{"st": {"0": "done"}}'
    for refused in (
        lambda: start(classic),
        lambda: start(f'{{"subscription": "s", "topics": {classic}}}'),
        lambda: end(classic),
        lambda: end(done),
    ):
        with pytest.raises(OptionError, match="'done' is not a message id"):
            refused()
