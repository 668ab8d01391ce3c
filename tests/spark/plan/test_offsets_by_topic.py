"""JSON by topic and partition: its order, what is shared, and what is left out."""

import random

import pytest

from pulsar_spark.spark.plan.offsets import updated

KEYS = [(topic, part) for topic in "abcde" for part in ("-1", *map(str, range(12)))] + [
    ("s", f"{first:04x}-ffff-{number}") for number, first in enumerate((0x8000, 0, 0xC000, 0x4000) * 3)
]


def test_the_order_is_by_topic_and_number():
    found = updated({}, dict.fromkeys(random.sample(KEYS, len(KEYS)), 0))
    assert [(topic, part) for topic, parts in found.items() for part in parts] == KEYS


@pytest.mark.parametrize("seed", range(20))
def test_changes_give_what_building_it_anew_gives(seed):
    rnd = random.Random(seed)
    values, found = {}, {}
    for turn in range(30):
        changed = dict.fromkeys(rnd.sample(KEYS, rnd.randrange(8)), turn)
        gone = rnd.sample([*values], rnd.randrange(1 + len(values) // 3))
        gone = [key for key in gone if key not in changed]
        values = {key: value for key, value in values.items() if key not in gone} | changed
        before, kept = found, {topic: dict(parts) for topic, parts in found.items()}
        found = updated(before, changed, gone)
        assert [*map(str, found.items())] == [*map(str, updated({}, values).items())]
        assert before == kept, "it is not changed"
        same = before.keys() & found.keys() - {topic for topic, _ in (*changed, *gone)}
        assert all(found[topic] is before[topic] for topic in same)
