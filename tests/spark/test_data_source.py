"""What Spark calls without a broker: lookup, schema, and errors that must come in the right call."""

import importlib
import logging
import pickle
import sys
from types import SimpleNamespace

import pytest
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, InputPartition
from pyspark.sql.types import IntegerType, StringType, StructType

import pulsar_spark
import pyspark_pulsar
import pyspark_pulsar_spark
from pulsar_spark.client import Range
from pulsar_spark.errors import OptionError, UnsupportedError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark import data_source as source_module
from pulsar_spark.spark.data_source import PulsarDataSource, register
from pulsar_spark.spark.rows.schema import SOURCE_SCHEMA
from pulsar_spark.spark.sink.report import TaskReport
from tests.test_modules import ROOT

URL = {"service.url": "pulsar://localhost:6650"}
VALUE = StructType().add("value", StringType())


def source(**options: str) -> PulsarDataSource:
    return PulsarDataSource(CaseInsensitiveDict({**URL, **options}))


def test_spark_finds_the_source_by_itself():
    assert issubclass(pyspark_pulsar.DefaultSource, DataSource)
    assert pyspark_pulsar.DefaultSource.name() == "pulsar"
    assert pyspark_pulsar_spark.DefaultSource.name() == "pulsar_spark"
    assert issubclass(pyspark_pulsar_spark.DefaultSource, PulsarDataSource)
    assert pulsar_spark.register is register


def test_the_entry_survives_what_cannot_be_imported(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "pulsar_spark.spark.data_source", None)
    for name in ("pyspark_pulsar", "pyspark_pulsar_spark"):
        monkeypatch.delitem(sys.modules, name)
        with caplog.at_level(logging.WARNING):
            entry = importlib.import_module(name)
        assert not hasattr(entry, "DefaultSource")
    assert caplog.text.count("is not available") == 1


def test_the_schema_call_tells_of_bad_options():
    assert source(topic="t").schema() == SOURCE_SCHEMA
    with pytest.raises(OptionError, match="Did you mean topic"):
        source(topicc="t").schema()


def test_making_a_stream_reader_never_fails_and_its_first_call_does():
    reader = source(topic="t").streamReader(schema=StructType().add("a", IntegerType()))
    reader.stop()
    for first_call in (reader.initialOffset, lambda: reader.read(InputPartition(None))):
        with pytest.raises(OptionError, match=r"no column a\. Its columns are value"):
            first_call()
    with pytest.raises(OptionError, match="nonsense"):
        source(nonsense="x").streamReader(schema=SOURCE_SCHEMA).initialOffset()


def test_a_users_schema_that_does_not_fit_is_refused_in_a_batch():
    with pytest.raises(OptionError, match="column value is binary, not string"):
        source(topic="t").reader(schema=VALUE)


def test_a_users_schema_chooses_columns():
    chosen = StructType([SOURCE_SCHEMA["__topic"], SOURCE_SCHEMA["value"]])
    for made in (source(topic="t").reader(chosen), source(topic="t").streamReader(chosen)):
        assert list(made.read(InputPartition(None))) == []


def test_what_travels_to_tasks_can_be_pickled():
    stream_reader = pickle.loads(pickle.dumps(source(topic="t").streamReader(schema=SOURCE_SCHEMA)))
    reader = pickle.loads(pickle.dumps(source(topic="t").reader(schema=SOURCE_SCHEMA)))
    asked = Range(TopicName.parse("t-partition-1"), MessageId(1, 2), MessageId(3, 4, 5))
    assert pickle.loads(pickle.dumps(InputPartition(asked))).value == asked
    # Where a batch has no partitions Spark makes one that means nothing.
    assert list(reader.read(InputPartition(None))) == []
    assert list(stream_reader.read(InputPartition(None))) == []
    pickle.dumps(source(topic="t").streamWriter(VALUE, overwrite=True))
    report = TaskReport({"t": [("1", 7, 70, 0, 2, 3, -1, 2, 9, -1)]})
    assert pickle.loads(pickle.dumps(report)) == report


def test_bad_rows_are_told_of_before_anything_is_sent():
    with pytest.raises(OptionError, match="no topic is given for the rows"):
        source().streamWriter(VALUE, overwrite=False)
    with pytest.raises(OptionError, match="no topic is given for the rows"):
        source().writer(VALUE, overwrite=False)


# ---- tables of Spark's catalog


def created(**options: str) -> PulsarDataSource:
    """As Spark makes it for CREATE TABLE, see tests/spark/test_catalog_tables.py."""
    given = {"service.url": URL["service.url"], **options}
    both = {**given, **{f"option.{name}": text for name, text in given.items()}}
    return PulsarDataSource(CaseInsensitiveDict({**both, "owner": "me", "provider": "pulsar"}))


def test_a_table_is_read_with_the_options_that_it_was_made_with():
    schema = created(topic="t", startingOffsets="latest", metadataColumns="__key").schema()
    assert schema.names == ["value", "__key"]
    used = PulsarDataSource(CaseInsensitiveDict({}))
    for made in (used.reader(schema), used.streamReader(schema)):
        assert list(made.read(InputPartition(None))) == []


def test_rows_do_not_choose_where_they_are_written():
    """Their metadata is that of a file or of another table, also where a table is written to."""
    rows = created(topic="theirs", metadataColumns="").schema()
    for given in ({}, {"topic": "t"}):
        sink = PulsarDataSource(CaseInsensitiveDict(given))
        with pytest.raises(OptionError, match=r"service.url is missing.* WITH \(\.\.\.\)"):
            sink.writer(rows, overwrite=False)
        with pytest.raises(OptionError, match=r"service.url is missing.* WITH \(\.\.\.\)"):
            sink.streamWriter(rows, overwrite=False)
    complete = PulsarDataSource(CaseInsensitiveDict({"service.url": "pulsar://ours", "topic": "t"}))
    options = complete.streamWriter(rows, overwrite=False)._options  # type: ignore[attr-defined]
    assert (options.client.service_url, options.topic) == ("pulsar://ours", TopicName.parse("t"))


def test_a_table_of_wrong_options_is_refused_when_it_is_made():
    for wrong, said in (
        ({"topicc": "t"}, "Did you mean topic"),
        ({"topic": "t", "delivery": "at-least-once"}, "delivery is not one of the source"),
        ({"topic": "t", "startingOffsets": "never"}, "startingOffsets"),
    ):
        with pytest.raises(OptionError, match=said):
            created(**wrong).schema()


# ---- what Spark shows


class Session:
    """What registration asks of a session."""

    def __init__(self, settings):
        self.dataSource = self.conf = self
        self.settings = settings
        self.registered = []
        self.active = False
        self.sparkContext = SimpleNamespace(_python_includes=[], master="local[2]", pythonExec="python3")

    def register(self, source):
        self.registered.append(source)

    def get(self, name, default):
        return self.settings.get(name, default)

    def createDataFrame(self, rows, schema):  # noqa: N802 - Spark's name
        self.active = True


@pytest.mark.parametrize(
    ("settings", "is_shown"),
    [
        ({}, True),
        ({"spark.sql.redaction.options.regex": "(?i)url|authparams"}, False),
        ({"spark.redaction.regex": "(?i)authParams"}, False),
        ({"spark.redaction.regex": "(?i)pulsar"}, False),
        ({"spark.sql.redaction.options.regex": "authparams"}, True),  # of another case
        ({"spark.redaction.regex": r"\p{Alpha}"}, True),  # only Java reads it
    ],
)
@pytest.mark.usefixtures("files")
def test_a_session_that_would_show_logins_is_told_of(settings, is_shown, caplog):
    session = Session(settings)
    with caplog.at_level(logging.INFO):
        register(session)  # type: ignore[arg-type]  # a part of one
    assert [source.name() for source in session.registered] == ["pulsar_spark", "pulsar"]
    assert session.active
    assert ("Spark shows option pulsar.client.authParams" in caplog.text) == is_shown
    assert all(record.levelno == logging.INFO for record in caplog.records)


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, ["authParams"]),
        (
            {"spark.redaction.regex": "secret"},
            ["authParams", "tlsTrustStorePassword", "tlsKeyPassword", "tlsKeyStorePassword"],
        ),
        ({"spark.sql.redaction.options.regex": "(?i)url|authparams|password"}, []),
        ({"spark.redaction.regex": "authParams|Password"}, []),
    ],
)
@pytest.mark.usefixtures("files")
def test_spark_hides_passwords_unless_it_is_told_otherwise(settings, shown, caplog):
    with caplog.at_level(logging.INFO):
        register(Session(settings))  # type: ignore[arg-type]  # a part of one
    named = ", ".join(f"pulsar.client.{name}" for name in shown)
    assert caplog.text.count("Spark shows option") == bool(shown)
    assert f"Spark shows option {named} in plans" in caplog.text or not shown


@pytest.mark.parametrize(
    ("pattern", "is_shown"),
    [
        (None, True),
        ("", True),
        ('(?i)(authparams|password)"[^"]*".*', False),  # as docs/security.md says
        ('authParams"[^"]*".*', True),  # passwords are shown
        ("token", True),
    ],
)
def test_a_connect_server_that_would_show_secrets_is_told_of(pattern, is_shown, monkeypatch, caplog):
    monkeypatch.setattr(source_module, "is_remote", lambda: True)
    monkeypatch.setattr(source_module, "_require_on_server", lambda spark: None)
    settings = {"spark.sql.redaction.options.regex": "(?i)url|authparams|password"}
    with caplog.at_level(logging.INFO):
        register(Session(settings | {"spark.sql.redaction.string.regex": pattern}))  # type: ignore[arg-type]
    assert ("Spark Connect shows the options" in caplog.text) == is_shown
    page = (ROOT / "docs" / "security.md").read_text()
    assert all(
        setting in page for setting in (source_module._CONNECT_REDACTION, source_module._CONNECT_PATTERN)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'Cannot run program "bin/python" (in directory "/a/userFiles/b")',
            "absolute path in PYSPARK_PYTHON",
        ),
        ("No module named 'pulsar_spark'", "Install the package with pip for the server's Python"),
    ],
)
def test_a_connect_server_that_cannot_run_the_package_is_told_of(text, said):
    def fail():
        raise PySparkException(text)

    loaded = SimpleNamespace(schema=SimpleNamespace(simpleString=fail))
    reader = SimpleNamespace(options=lambda **given: SimpleNamespace(load=lambda: loaded))
    session = SimpleNamespace(read=SimpleNamespace(format=lambda name: reader))
    with pytest.raises(UnsupportedError, match=rf"\[PULSAR_UNSUPPORTED\] the Spark Connect server .*{said}"):
        source_module._require_on_server(session)  # type: ignore[arg-type]  # a part of one


# ---- what came as a file


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The folder into which Spark has put what it was given."""
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    for name in ("given.jar", "helper.py", "other.txt"):
        (tmp_path / name).touch()
    return tmp_path


def test_streams_find_what_came_as_a_file(files):
    for _ in range(2):
        source_module._link_for_streams(["given.jar", "absent.zip"])
    assert sorted(link.name for link in (files / "streaming_job").iterdir()) == ["given.jar", "helper.py"]
    assert (files / "streaming_job" / "given.jar").resolve() == files / "given.jar"


def test_no_link_is_an_error_that_says_what_to_do(files):
    (files / "streaming_job").touch()
    with pytest.raises(
        UnsupportedError, match=r"cannot be linked for the planners of streams.*Install the package"
    ):
        source_module._link_for_streams(["given.jar"])


def test_a_spark_that_does_not_say_what_came_is_an_error_where_it_matters(files, monkeypatch):
    source_module._link_for_streams(None)
    monkeypatch.setattr(source_module, "__file__", str(files / "given.jar" / "pulsar_spark" / "source.py"))
    with pytest.raises(
        UnsupportedError, match=r"does not show which files came with --packages .* Install the package"
    ):
        source_module._link_for_streams(None)
