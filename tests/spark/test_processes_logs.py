"""Log lines of Spark's processes: their level is the query's, and each is shown once."""

import logging
import subprocess
import sys

import pytest
from pyspark import SparkFiles

from pulsar_spark.client import ClientOptions, Credentials, KeyStore, TlsOptions
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.parse import parse_sink, parse_source
from pulsar_spark.spark.processes import LEVELS, is_first_to_say, set_up_logs, warn_of_login
from tests.test_modules import ROOT

URL = {"service.url": "pulsar://localhost:6650", "topic": "t"}


def lines_of(code):
    """What a process of its own, as Spark starts them, writes to the standard error."""
    begin = "import logging\nfrom pulsar_spark.spark.processes import set_up_logs\n"
    begin += "log = logging.getLogger('pulsar_spark.spark.reader')\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stderr.splitlines()


def test_a_line_has_time_level_and_logger_and_the_next_query_has_its_own_level():
    code = "set_up_logs(logging.INFO)\nlog.info('it says %d', 7)\nlog.debug('no')\n"
    code += "for level in (logging.INFO, None, logging.ERROR, logging.INFO):\n"
    code += (
        "    set_up_logs(level)\n    log.info('info of %s', level)\n    log.warning('warning of %s', level)"
    )
    first, *others = lines_of(code)
    time, rest = first[:17], first[17:]
    assert rest == " INFO pulsar_spark.spark.reader: it says 7"
    assert [len(part) for part in time.replace(" ", "/").replace(":", "/").split("/")] == [2] * 6
    found = [line.partition(": ")[2] for line in others]
    assert found == ["info of 20", "warning of 20", "warning of None", "info of 20", "warning of 20"]


def test_a_handler_that_is_there_is_not_doubled():
    code = "logging.basicConfig(format='own %(message)s')\nset_up_logs(logging.INFO)\nlog.info('once')"
    assert lines_of(code) == ["own once"]


@pytest.mark.parametrize("parse", [lambda options: parse_source(options, None), parse_sink])
def test_the_option(parse):
    assert parse(URL).log_level is None
    for name, level in LEVELS.items():
        assert parse({**URL, "logLevel": name.lower()}).log_level == level
    with pytest.raises(OptionError, match="one of DEBUG, INFO, WARN, ERROR"):
        parse({**URL, "logLevel": "loud"})


def test_what_one_process_has_said_others_need_not(tmp_path, monkeypatch):
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    code = "import sys\nfrom pyspark import SparkFiles\n"
    code += "from pulsar_spark.spark.processes import is_first_to_say\n"
    code += f"SparkFiles.getRootDirectory = lambda: {str(tmp_path)!r}\nprint(is_first_to_say('a/b'))"
    other = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == "True"
    assert not is_first_to_say("a/b")
    assert is_first_to_say("another")


def test_where_spark_has_no_folder_each_process_says_it(tmp_path, monkeypatch):
    for _ in range(2):
        assert is_first_to_say("a")  # no Spark runs here
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(file))
    assert is_first_to_say("a")


def test_variables_whose_names_do_not_say_that_they_are_secret(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    shown, hidden = Credentials("token", "env:PULSAR_JWT"), Credentials("token", "env:PULSAR_token")
    tls = TlsOptions(
        key="k", certificate="c", key_password="env:PEM", trust_store=KeyStore("file", "env:STORE_PASSWORD")
    )
    for login in (shown, shown, hidden, Credentials("token", "file:env"), None):
        warn_of_login(ClientOptions(service_url="pulsar+ssl://b", credentials=login, tls=tls), "env:LOG_KEY")
    assert [record.args[0].split()[5] for record in caplog.records] == ["PEM", "PULSAR_JWT", "LOG_KEY"]
    assert "Spark hides only names with SECRET, PASSWORD or TOKEN" in caplog.text


def test_a_login_at_risk_is_one_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    for url in ("pulsar://broker", "pulsar://broker", "pulsar://localhost"):
        warn_of_login(ClientOptions(service_url=url, credentials=Credentials("token", "my-secret")))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "service.url has no TLS" in record.getMessage()
    assert "my-secret" not in caplog.text


@pytest.fixture(autouse=True)
def _leave_no_level():
    yield
    set_up_logs(None)
    assert logging.getLogger("pulsar_spark").level == logging.NOTSET
