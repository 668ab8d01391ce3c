"""A pytest fixture with a real Pulsar, for tests of users' own queries; it needs the extra ``testing``."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pulsar_spark.client import Admin
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.data_source import register
from pulsar_spark_broker.process import TEST_JVM
from pulsar_spark_broker.standalone import ONCE_SETTINGS, StandaloneBroker

__all__ = ["PulsarForTests", "pulsar"]

_SERVICE_URL, _ADMIN_URL = "PULSAR_SPARK_TEST_SERVICE_URL", "PULSAR_SPARK_TEST_ADMIN_URL"

# Settings of the Spark session that the fixture creates: few tasks, and no access from other hosts.
_SPARK: dict[str, bool | float | int | str | None] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


class PulsarForTests:
    """A broker, with methods to write to it and read from it through Spark.

    Attributes:
        service_url: value for the option ``service.url``.
        admin_url: value for the option ``admin.url`` and the command line.
    """

    def __init__(self, service_url: str, admin_url: str) -> None:
        self.service_url = service_url
        self.admin_url = admin_url

    @property
    def spark(self) -> SparkSession:
        """The active session, or a new session with two cores in which the source and sink are registered."""
        session = SparkSession.getActiveSession()
        if session is None:
            session = SparkSession.builder.master("local[2]").config(map=_SPARK).getOrCreate()
            register(session)
        return session

    def new_topic(self, partitions: int = 0) -> str:
        """Creates a topic that no other test uses; returns its full name."""
        topic = TopicName("persistent", "public", "default", f"test-{uuid.uuid4().hex}")
        admin = Admin(self.admin_url)
        if partitions:
            admin.call("PUT", *topic, "partitions", body=partitions)
        else:
            admin.call("PUT", *topic)
        return str(topic)

    def send(
        self,
        topic: str,
        rows: Iterable[Sequence[Any]],
        schema: str = "__key string, value string",
        **options: str,
    ) -> None:
        """Writes rows as messages, in their order.

        Args:
            schema: names and types of the columns, as Spark writes them.
            options: options of the sink, such as ``valueFormat="columns"``.
        """
        frame = self.spark.createDataFrame(list(rows), schema).coalesce(1)
        writer = frame.write.format("pulsar").options(**self._places(topic), **options)
        writer.mode("append").save()

    def read_all(self, topic: str, **options: str) -> list[Row]:
        """Returns all messages of the topic, as rows of a batch read with these options of the source."""
        reader = self.spark.read.format("pulsar").options(**self._places(topic), **options)
        return list(reader.load().collect())

    def _places(self, topic: str) -> dict[str, str]:
        return {"service.url": self.service_url, "topic": topic}


@pytest.fixture(scope="session")
def pulsar() -> Iterator[PulsarForTests]:
    """A Pulsar for all tests of a pytest session, with deduplication and transactions.

    The variables PULSAR_SPARK_TEST_SERVICE_URL and PULSAR_SPARK_TEST_ADMIN_URL name a running Pulsar. Without
    these variables a broker is started from published jars, and stopped at the end. This needs Java 17 or
    newer, and the first start downloads the jars.
    """
    if _SERVICE_URL in os.environ:
        yield PulsarForTests(os.environ[_SERVICE_URL], os.environ[_ADMIN_URL])
        return
    with StandaloneBroker(ONCE_SETTINGS, jvm=TEST_JVM) as broker:
        yield PulsarForTests(broker.service_url, broker.admin_url)
