"""The version is the same wherever it is said."""

import re
import subprocess
import sys

import pytest

import pulsar_spark
from integration.docs import PAGES, ROOT
from pulsar_spark.cli import main
from pulsar_spark.cli.package import coordinates
from pulsar_spark.protocol.connection import CLIENT_VERSION
from pulsar_spark.version import VERSION


def test_the_package_says_it(capsys):
    assert re.fullmatch(r"\d+\.\d+\.\d+(?:\.dev\d+|rc\d+)?", VERSION)
    assert pulsar_spark.__version__ == VERSION
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert (done.value.code, capsys.readouterr().out) == (0, f"pulsar_spark {VERSION}\n")


def test_brokers_and_the_jar_are_of_it():
    assert f"pulsar-spark {VERSION}" == CLIENT_VERSION
    assert coordinates().rpartition(":")[2] == VERSION


def test_setuptools_takes_it_without_importing_the_package():
    code = "from setuptools.config.setupcfg import read_configuration as read\n"
    code += "import sys\nprint(read('setup.cfg')['metadata']['version'])\n"
    code += "assert 'pulsar_spark.errors' not in sys.modules"
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == VERSION


def test_pages_name_files_of_this_version():
    for page in PAGES:
        found = re.findall(r"pulsar[-_]spark[-:](\d+\.\d+\.\d+)", page.read_text())
        assert set(found) <= {VERSION}, page.name
