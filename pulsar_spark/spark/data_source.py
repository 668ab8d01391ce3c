"""The data source, which Spark finds by ``format("pulsar")`` or ``"pulsar_spark"``, and its registration.

Tables in Spark's catalog have the options of ``CREATE TABLE ... USING pulsar OPTIONS (...)``.
Spark 4.2 and 4.3 pass these options only when the table is created: each option with and without the prefix
``option.``, and also properties of the table, such as its owner. So this module stores the options in the
metadata of the table's first column. Spark keeps column metadata, and passes it when the table is read.

    statement        options that Spark passes         schema
    CREATE TABLE     topic, option.topic, owner, ...   made here, with the options in its metadata
    SELECT           options of WITH (...)             the table's, with the options in its metadata
    INSERT, save     options of WITH (...)             the rows', with any metadata

A write never uses options from metadata. The rows may be from a Parquet file, whose metadata Spark passes,
and the file's author must not choose the cluster for the rows.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkFiles
from pyspark import __version__ as spark_version
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, is_remote
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructField, StructType

from pulsar_spark.errors import OptionError, UnsupportedError
from pulsar_spark.spark.older_spark import OlderStreamReader
from pulsar_spark.spark.options.connection import CONNECTION, LOGIN, SERVICE_URL, check_key_reader
from pulsar_spark.spark.options.parse import parse_sink, parse_source
from pulsar_spark.spark.options.sink import SINK
from pulsar_spark.spark.options.source import SOURCE
from pulsar_spark.spark.processes import REDACTED, set_up_logs, use_this_python
from pulsar_spark.spark.reader import PulsarReader, PulsarStreamReader
from pulsar_spark.spark.row_plan import RowPlan, plan_rows
from pulsar_spark.spark.short_errors import short_errors
from pulsar_spark.spark.spark_api import HAS_READ_LIMITS

_PREFIX = "option."
# Properties that Spark 4.2 and 4.3 always pass when a table is created.
_OF_A_TABLE = frozenset({"owner", "provider"})
_KEY = "pulsar_spark.options"


def created_with(options: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the options of a table that is being created; None if no table is being created.

    Raises OptionError: there are no OPTIONS, or one has a secret, which the table's description would show.
    """
    given = {name[len(_PREFIX) :]: text for name, text in options.items() if name.startswith(_PREFIX)}
    if not given and options.keys() >= _OF_A_TABLE:
        raise OptionError(
            "the table has no OPTIONS; other properties are not used",
            advice="CREATE TABLE t USING pulsar OPTIONS ('service.url' 'pulsar://host:6650', topic 'orders')",
        )
    if not given:
        return None
    if "path" in options:  # Spark passes ``path`` without a prefix; the parser then refuses it
        given["path"] = options["path"]
    for option in (*CONNECTION, *SOURCE, *SINK):
        text = next((text for name, text in given.items() if name.lower() == option.name.lower()), "")
        if option.secret and text and not text.strip().startswith(("file:", "env:")):
            raise OptionError(
                f"option {option.name} of a table contains a secret, and Spark would show it with the "
                "table's description",
                advice="Give its place as file:///PATH or env:NAME, or create a temporary view instead",
            )
    return given


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Returns the schema of a table, with the options in its metadata."""
    first, *others = schema.fields
    metadata = {_KEY: json.dumps(dict(options))}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def read_with(options: Mapping[str, str], schema: StructType) -> tuple[Mapping[str, str], StructType]:
    """Returns the options of a read, and its columns without options in their metadata.

    Args:
        options: options that Spark passes for this read. If they have ``service.url``, the table's options
            are ignored. Otherwise they override single options of the table.

    Raises:
        OptionError: the options have a login but no ``service.url``. The schema may have another author,
            who must not choose the cluster that receives the login.
    """
    kept = [field.metadata[_KEY] for field in schema.fields if _KEY in (field.metadata or {})]
    if not kept:
        return options, schema
    given = {name.lower() for name in options}
    if SERVICE_URL.name not in given:
        login = next((option.name for option in LOGIN if option.name.lower() in given), None)
        if login is not None:
            raise OptionError(
                f"option {login} is given without service.url for the read of a table",
                advice="Give all options, or set the login when you create the table",
            )
        options = {**_parsed(kept[0]), **options}
    columns = [StructField(each.name, each.dataType, each.nullable) for each in schema.fields]
    return options, StructType(columns)


def _parsed(text: object) -> dict[str, str]:
    try:
        found = json.loads(str(text))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise OptionError(
            "the options in the metadata of the table's columns cannot be read",
            advice="Create the table again",
        )
    return found


# Settings of Spark, and their default patterns. Spark hides the values of options with matching names.
_REDACTION = {"spark.sql.redaction.options.regex": "(?i)url", "spark.redaction.regex": REDACTED}

_CONNECT_TEXT = 'key: "%s"\n  value: "x"'  # an option's text in Spark Connect's plans
_CONNECT_REDACTION = "spark.sql.redaction.string.regex"  # setting: pattern of the text to hide
_CONNECT_PATTERN = '(?i)(authparams|password)"[^"]*".*'  # value for the setting, in advice to the user

# Options whose values are secret; not transactionLogKey, which only names a file or variable.
_SECRETS = [option.name for option in CONNECTION if option.secret]

_log = logging.getLogger(__name__)

_INSTALL = "Install the package with pip for the driver's Python, see docs/deploying.md"
_ABSOLUTE = "Start the server with an absolute path in PYSPARK_PYTHON: it runs Python in a session's folder"
_INSTALL_ON_SERVER = (
    "Install the package with pip for the server's Python, which PYSPARK_PYTHON named when the server "
    "started. See docs/deploying.md"
)


class PulsarDataSource(DataSource):
    """Apache Pulsar as source and sink, for batches and streams; the options are in docs/options.md."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "pulsar"

    # Set when Spark requests the schema, before Spark pickles this object for other processes. So all readers
    # use the same plan, with the same columns and decoding of payloads.
    _rows: RowPlan | None = None

    @short_errors
    def schema(self) -> StructType:
        """Returns the columns of the source. ``load()`` calls this, so bad options raise OptionError there.

        Not called if the user gives the schema.
        """
        table = created_with(self.options)
        options = parse_source(self.options if table is None else table, None)
        set_up_logs(options.log_level)
        check_key_reader(options.decryption.key_reader)
        rows = plan_rows(options)
        if table is None:
            self._rows = rows
            return rows.columns.schema
        return with_options(rows.columns.schema, table)

    @short_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader for ``spark.read``."""
        options, columns = read_with(self.options, schema)
        return PulsarReader(options, columns, self._rows)

    @short_errors
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Returns the reader for ``spark.readStream``. Never fails, see :class:`PulsarStreamReader`."""
        options, columns = read_with(self.options, schema)
        made = PulsarStreamReader if HAS_READ_LIMITS else OlderStreamReader
        return made(options, columns, self._rows)

    @short_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns the writer for ``df.write``."""
        from pulsar_spark.spark.writer import PulsarWriter  # noqa: PLC0415 - only writing queries need it

        return PulsarWriter(parse_sink(self.options), schema, overwrite)

    @short_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Returns the writer for ``df.writeStream``; ``overwrite`` (complete mode) changes nothing."""
        from pulsar_spark.spark.writer import PulsarStreamWriter  # noqa: PLC0415 - only writing queries need it

        return PulsarStreamWriter(parse_sink(self.options), schema)


class PulsarSparkDataSource(PulsarDataSource):
    """The same data source under a unique name, for sessions in which ``pulsar`` is another connector."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "pulsar_spark"


@short_errors
def register(spark: SparkSession) -> None:
    """Registers ``format("pulsar")`` and ``"pulsar_spark"`` in a session that does not find them itself.

    Needed if the package is not installed, but added with ``--packages``, ``--py-files`` or ``addPyFile``;
    call it after the last ``addPyFile``. Also needed if ``python3`` of the PATH is not the Python that has
    the package, as in notebooks: Spark's processes on this machine then run the Python that calls this. Also
    needed in each thread that writes, because Spark looks for the format in the thread's active session.
    Otherwise it has no effect.

    Raises:
        UnsupportedError: streams, or a Spark Connect server, cannot find the package, and it cannot be made
            available to them.
    """
    has_server = is_remote()
    if not has_server:
        use_this_python(spark.sparkContext)
        spark.createDataFrame([], "value binary")  # makes ``spark`` the active session of this thread
    for source in (PulsarSparkDataSource, PulsarDataSource):
        try:
            spark.dataSource.register(source)
        except PySparkException as error:
            # Spark 4.0 and 4.1 have found the source themselves, and do not let it be replaced.
            if "[DATA_SOURCE_ALREADY_EXISTS]" not in str(error):
                raise
    _log_shown_options(spark, has_server=has_server)
    if has_server:
        _require_on_server(spark)
    else:
        _link_for_streams(getattr(spark.sparkContext, "_python_includes", None))


def _log_shown_options(spark: SparkSession, *, has_server: bool) -> None:
    """Logs the options that may contain secrets and whose values Spark or a Spark Connect server would show.

    The level is INFO, because the values are not known yet, and may be a file's path instead of a secret.
    """
    patterns = [spark.conf.get(name, default) or "" for name, default in _REDACTION.items()]
    shown = [name for name in _SECRETS if not any(_is_redacted(name, pattern) for pattern in patterns)]
    if shown:
        _log.info(
            "Spark shows option %s in plans, its UI and the event log. If it contains a secret, set "
            "spark.sql.redaction.options.regex to (?i)url|authparams|password, or give the secret's place "
            "as file:// or env:",
            ", ".join(shown),
        )
    pattern = spark.conf.get(_CONNECT_REDACTION, None) if has_server else ""
    if has_server and not all(pattern and _is_redacted(_CONNECT_TEXT % name, pattern) for name in _SECRETS):
        _log.info(
            "Spark Connect shows the options of each plan in its UI and the event log. If one contains a "
            "secret, set %s to %s on the server, or give the secret's place as file:// or env:",
            *(_CONNECT_REDACTION, _CONNECT_PATTERN),
        )


def _is_redacted(name: str, pattern: str) -> bool:
    """Whether a pattern of Spark matches an option; False if only Java can parse the pattern."""
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False


def _require_on_server(spark: SparkSession) -> None:
    """Checks that the Spark Connect server can import this package; raises if not. Contacts no broker."""
    options = {"service.url": "pulsar://localhost:6650", "topic": "none"}
    try:
        spark.read.format("pulsar").options(**options).load().schema.simpleString()
    except PySparkException as error:
        if "Cannot run program" in str(error):
            what = "the Spark Connect server cannot start Python"
            raise UnsupportedError(what, advice=_ABSOLUTE) from error
        if "No module named 'pulsar_spark'" not in str(error):
            raise
        what = "the Spark Connect server cannot import pulsar_spark"
        raise UnsupportedError(what, advice=_INSTALL_ON_SERVER) from error


def _link_for_streams(archives: list[str] | None) -> None:
    """Lets the streaming planner import packages that were added as files.

    The planner imports only from ``streaming_job``, a subfolder of Spark's files, so links are made there.

    ``archives``: names of the added zip files and jars. None: this Spark version does not list them, so a
    package that was loaded from an archive raises UnsupportedError.
    """
    files = Path(SparkFiles.getRootDirectory())
    if archives is None:
        if Path(__file__).is_file():
            return
        what = f"this Spark ({spark_version}) does not show which files came with --packages and --py-files"
        raise UnsupportedError(what, advice=_INSTALL)
    folder = files / "streaming_job"
    try:
        for source in [*(files / name for name in archives), *files.glob("*.py")]:
            link = folder / source.name
            if source.exists() and not link.exists():
                folder.mkdir(exist_ok=True)
                link.symlink_to(source)
    except OSError as error:
        raise UnsupportedError(
            f"the package cannot be linked for the planners of streams: {error}", advice=_INSTALL
        ) from error
