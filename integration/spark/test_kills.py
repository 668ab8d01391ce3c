"""The driver is killed with -9 at random while a producer writes; ``chaos restarts`` does so more often."""

import random

import pytest

from integration.chaos.restarts import kill_drivers

KILLS = 1


@pytest.mark.long
def test_a_driver_that_is_killed_loses_nothing_and_repeats_nothing(cluster, admin, topic, tmp_path):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    admin.create_topic(topic)
    assert kill_drivers(cluster.service_url, topic, tmp_path, random.Random(seed), KILLS) > 0
