"""Some of the cells that `integration chaos losses` tries, all of them."""

import pytest

from integration.fixtures.spark import PulsarInSpark
from integration.helpers.losses import BROKER as BROKER
from integration.helpers.losses import CELLS, Here, run_cell


@pytest.mark.parametrize(
    "name",
    [
        "truncate-long-at",
        "skip_all-long-inside",
        "retention-stopped-inside",
        "retention-long-at",
        "size_quota-planned-inside",
        pytest.param("truncate-retried-at", marks=pytest.mark.long),
        pytest.param("retention-planned-after", marks=pytest.mark.long),
        pytest.param("skip_all-idle-after", marks=pytest.mark.long),
        pytest.param("retention-idle-at", marks=pytest.mark.long),
    ],
)
def test_every_message_is_read_or_named_as_lost_once(spark, own_broker, tmp_path, name):
    """Each of these cells ends in an error or in nothing: what is a WARNING is not seen here."""
    (cell,) = (each for each in CELLS if str(each) == name)
    here = Here(PulsarInSpark(spark, own_broker.service_url), own_broker.admin, str)
    outcome = run_cell(here, cell, tmp_path / "checkpoint")
    outcome.check(cell)
    assert bool(outcome.missing) is not name.startswith("retention")
