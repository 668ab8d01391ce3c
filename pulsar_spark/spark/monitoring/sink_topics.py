"""The topics that a query has written to, passed from the process that commits to the one that listens.

The file of a query: its topics, by service URL. Rows may name their topics, so only a commit knows them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection

from pulsar_spark.spark.logs import is_first_to_say
from pulsar_spark.spark.monitoring.driver_files import DriverFiles

# Maximum number of topics of a query: rows may name any number of them.
MAX_TOPICS = 1000

_files = DriverFiles("pulsar_spark_sink_topics")

_log = logging.getLogger(__name__)


def add_sink_topics(query: str, service_url: str, topics: Collection[str]) -> None:
    """Add the topics of a micro-batch; only one process of a query may call it at a time.

    Args:
        query: id of the query.
        service_url: URL of the cluster.
        topics: full names of topics, without partitions. Those beyond ``MAX_TOPICS`` are left out with a
            warning.
    """
    try:
        known = _read(query)
        before = known.get(service_url, [])
        room = MAX_TOPICS - sum(map(len, known.values()))
        new = sorted(set(topics) - set(before))
        if new[:room]:
            _files.write(query, json.dumps({**known, service_url: [*before, *new[:room]]}))
        if len(new) > room and is_first_to_say(f"topics of query {query}"):
            _log.warning("query %s: listeners see only %d topics of the sink", query, MAX_TOPICS)
    except (OSError, RuntimeError, ValueError) as error:
        _log.warning("query %s: listeners do not see the sink's topics: %s", query, error)


def read_sink_topics(query: str) -> frozenset[tuple[str, str]]:
    """Service URL and name of each topic that a query has written to since Spark was started.

    Empty if Spark does not run beside this process.
    """
    try:
        return frozenset((url, topic) for url, topics in _read(query).items() for topic in topics)
    except (OSError, RuntimeError, ValueError):
        return frozenset()


def _read(query: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(_files.read(query) or "{}")
    return found
