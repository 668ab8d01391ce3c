"""``PulsarDataSource``: what ``format("pulsar")`` is to Spark, and its registration."""

from __future__ import annotations

import logging
from pathlib import Path

from pyspark import SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pulsar_spark.spark.options import parse_sink, parse_source
from pulsar_spark.spark.reader import PulsarReader, PulsarStreamReader
from pulsar_spark.spark.schema import source_schema
from pulsar_spark.spark.writer import PulsarStreamWriter, PulsarWriter

_log = logging.getLogger(__name__)


class PulsarDataSource(DataSource):
    """Apache Pulsar as source and sink, for batches and streams; the options are in docs/options.md."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "pulsar"

    def schema(self) -> StructType:
        """The columns of a source. Called by ``load()``, so bad options are told of there."""
        return source_schema(parse_source(self.options, None).metadata_columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        return PulsarReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For ``spark.readStream``. Never fails, see :class:`PulsarStreamReader`."""
        return PulsarStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``df.write``."""
        return PulsarWriter(parse_sink(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """For ``df.writeStream``; ``overwrite`` is complete mode."""
        return PulsarStreamWriter(parse_sink(self.options), schema)


def register(spark: SparkSession) -> None:
    """Make ``format("pulsar")`` known to a session that does not find it by itself.

    Needed where the package is not installed, but came by ``--py-files``, ``--packages`` or ``addPyFile``; to
    be called after the last ``addPyFile``.
    """
    spark.dataSource.register(PulsarDataSource)
    _link_for_streams(spark)


def _link_for_streams(spark: SparkSession) -> None:
    """Let the streaming planner import what came as a file.

    Spark 4.2 and 4.3 let that process look in ``<files>/streaming_job`` in place of ``<files>``: links
    there cure it.
    """
    context = spark.sparkContext
    includes = getattr(context, "_python_includes", None)
    if includes is None:
        _log.warning("streams do not find packages that came by --py-files: install them on the driver")
        return
    root = Path(SparkFiles.getRootDirectory())
    folder = root / "streaming_job"
    for name in includes:
        link = folder / name
        if (root / name).exists() and not link.exists():
            folder.mkdir(exist_ok=True)
            link.symlink_to(root / name)
