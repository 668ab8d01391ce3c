import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.client import CopyRange, Source, Witness
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.offsets import Left, OffsetCache, Offsets

A = TopicName.parse("a")
B2 = TopicName.parse("b-partition-2")
B10 = TopicName.parse("b-partition-10")


def test_the_json_is_readable():
    offsets = Offsets("s", {A: MessageId(1, 2), B2: MessageId(3, -1)})
    assert offsets.to_json() == {
        "subscription": "s",
        "topics": {
            "persistent://public/default/a": {"-1": "1:2"},
            "persistent://public/default/b": {"2": "3:-1"},
        },
    }


def test_keys_are_in_one_fixed_order_whatever_the_order_of_the_positions():
    positions = {B10: MessageId(1, 1), A: MessageId(1, 2), B2: MessageId(3, 4)}
    backwards = dict(reversed(positions.items()))
    text = json.dumps(Offsets("s", positions).to_json())
    assert text == json.dumps(Offsets("s", backwards).to_json())
    assert text.index('"2"') < text.index('"10"')


@pytest.mark.parametrize(
    "position", [MessageId(1, 2), MessageId(1, 2, 3), MessageId(5, -1), MessageId(2**60, 2**40)], ids=str
)
def test_what_is_written_is_read(position):
    offsets = Offsets("s", {A: position, B2: position})
    assert Offsets.from_json(json.loads(json.dumps(offsets.to_json()))) == offsets


@pytest.mark.parametrize(
    "data",
    [
        {},
        5,
        None,
        [1],
        "2:3",
        {"subscription": "s"},
        {"subscription": 1, "topics": {}},
        {"subscription": "s", "topics": {"a": "1:2"}},
        {"subscription": "s", "topics": {"a": {"0": "somewhere"}}},
        {"subscription": "s", "topics": {"a": {"first": "1:2"}}},
        {"subscription": "s", "topics": {"a": {"0": None}}},
    ],
)
def test_another_sources_offset_is_an_option_error(data):
    with pytest.raises(OptionError):
        Offsets.from_json(data)


def test_the_first_versions_checkpoint_is_read():
    text = '{"subscription": "s", "topics": {"persistent://public/default/b": {"2": "3:4", "10": "1:1:1"}}}'
    assert Offsets.from_json(json.loads(text)) == Offsets("s", {B2: MessageId(3, 4), B10: MessageId(1, 1, 1)})
    assert json.dumps(Offsets.from_json(json.loads(text)).to_json()) == text


def test_what_spark_hands_over_again_is_the_same_object():
    cache = OffsetCache()
    text = json.dumps(Offsets("s", {A: MessageId(1, 2), B2: MessageId(3, 4)}).to_json())
    start = cache.from_json(json.loads(text))
    assert cache.from_json(json.loads(text)) is start
    end = Offsets("s", {A: MessageId(1, 5), B2: start.positions[B2]})
    written = cache.to_json(end)
    assert cache.from_json(json.loads(json.dumps(written))) is end
    assert cache.from_json(json.loads(text)) is start
    other = cache.from_json(json.loads(text.replace("1:2", "1:3")))
    assert other.positions[A] == MessageId(1, 3)


positions = st.dictionaries(
    st.sampled_from([A, B2, B10, TopicName.parse("b-partition-0"), TopicName.parse("c")]),
    st.builds(MessageId, st.integers(0, 3), st.integers(-1, 3), st.sampled_from([-1, 0])),
)


@given(st.lists(st.tuples(st.sampled_from(["s", "t"]), positions), max_size=8))
def test_offsets_that_follow_one_another_are_written_like_each_alone(found):
    cache, before = OffsetCache(), {}
    for name, places in found:
        # What has not moved is the same object, as the planner has it.
        places = {
            topic: before[topic] if before.get(topic) == each else each for topic, each in places.items()
        }
        before = places
        offsets = Offsets(name, places)
        assert json.dumps(cache.to_json(offsets)) == json.dumps(offsets.to_json())
        assert cache.from_json(json.loads(json.dumps(offsets.to_json()))) == offsets


@pytest.mark.parametrize("witness", [None, Witness(A, MessageId(1, 1), 4)])
def test_where_another_cluster_was_left_is_written_and_read(witness):
    left = Left("a", 5, {A: MessageId(1, 2, 3)}, witness)
    offsets = Offsets("s", {A: MessageId(1, 2)}, left=left)
    json_ = offsets.to_json()
    place = {"cluster": "a", "time": 5, "topics": {"persistent://public/default/a": {"-1": "1:2:3"}}}
    with_witness = {"witness": ["persistent://public/default/a#-1", "1:1", 4]}
    assert json_["left"] == place | (with_witness if witness else {})
    assert Offsets.from_json(json.loads(json.dumps(json_))) == offsets
    after = Offsets("s", {A: MessageId(1, 3)}, left=left)
    assert after.to_json_after(offsets, json_) == after.to_json()
    assert after.to_json_after(offsets, json_)["left"] is json_["left"]
    moved = Offsets("s", {A: MessageId(1, 3)}, left=left._replace(cluster="b"))
    assert moved.to_json_after(offsets, json_) == moved.to_json()
    assert moved.to_json()["left"]["cluster"] == "b"


def test_copies_that_were_not_read_in_the_left_cluster():
    left = Left("a", 5, {A: MessageId(1, 2, 3)})
    assert left.unread(A) == CopyRange("a", MessageId(1, 2, 3), 5)
    assert left.unread(B2) is None


@pytest.mark.parametrize("source", [None, Source("a", MessageId(3, 4)), Source("a", None)])
def test_a_witness_is_written_short_and_read(source):
    offsets = Offsets(
        "s", {A: MessageId(1, 2)}, Witness(A, MessageId(123_456, 123_456), 1_764_400_000_000, source)
    )
    json_, without = offsets.to_json(), Offsets("s", offsets.positions).to_json()
    assert Offsets.from_json(json.loads(json.dumps(json_))) == offsets
    cache = OffsetCache()
    cache.to_json(Offsets("s", offsets.positions))
    assert cache.to_json(offsets) == json_
    if source is None:
        assert len(json.dumps(json_)) - len(json.dumps(without)) - len(str(A)) <= 60


@pytest.mark.parametrize(
    "witness",
    [None, 1, [], ["a#-1", "1:1"], ["a#-1", "1:1", 4, "b"], ["a#-1", "1:1", None], {"topic": "a#-1"}],
)
def test_a_malformed_witness_is_refused(witness):
    with pytest.raises(OptionError):
        Offsets.from_json({"subscription": "s", "topics": {}, "witness": witness})


@pytest.mark.parametrize(
    "left", [1, {}, {"cluster": "a", "topics": {}}, {"cluster": "a", "time": 1}, {"time": 1, "topics": {}}]
)
def test_a_malformed_left_is_refused(left):
    with pytest.raises(OptionError):
        Offsets.from_json({"subscription": "s", "topics": {}, "left": left})


def test_what_a_newer_version_added_is_not_ignored():
    data = {**Offsets("s", {A: MessageId(1, 2)}).to_json(), "epochs": {}}
    with pytest.raises(
        OptionError, match="the checkpoint contains epochs, which this version of pulsar_spark cannot read"
    ):
        Offsets.from_json(data)


def test_segments_have_their_hashes_and_may_be_done():
    topic = TopicName.parse("topic://public/default/st", scalable=True)
    positions = {
        topic.segment(0, 0xFFFF, 0): MessageId.LATEST,
        topic.segment(0, 0x7FFF, 2): MessageId(16, 5),
        topic.segment(0x8000, 0xFFFF, 10): MessageId(17, -1),
    }
    offsets = Offsets("s", positions)
    json = offsets.to_json()
    parts = {"0000-ffff-0": "done", "0000-7fff-2": "16:5", "8000-ffff-10": "17:-1"}
    assert json == {"subscription": "s", "topics": {"topic://public/default/st": parts}}
    assert list(json["topics"]["topic://public/default/st"]) == list(parts)
    assert Offsets.from_json(json) == offsets
    moved = Offsets("s", positions | {topic.segment(0, 0x7FFF, 2): MessageId.LATEST})
    assert moved.to_json_after(offsets, json) == moved.to_json()
    with pytest.raises(OptionError, match="'3' is not a partition or segment"):
        Offsets.from_json({"subscription": "s", "topics": {"topic://public/default/st": {"3": "1:1"}}})
