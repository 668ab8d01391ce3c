"""The command line without a cluster: its usage, its exit codes, and that it needs no Spark."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_spark.cli import main
from pulsar_spark.cli.subscriptions import Found, unused_of
from pulsar_spark.ids import TopicName

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "http://127.0.0.1:1"
UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def usage_error(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_wrong_usage(capsys):
    assert "COMMAND" in usage_error(capsys)
    assert "ACTION" in usage_error(capsys, "admin")
    url = ("subscriptions", "--admin-url", NOWHERE)
    assert "--remove requires --checkpoint" in usage_error(capsys, *url, "--remove")
    assert "--namespace" in usage_error(capsys, *url, "--topic", "t", "--namespace", "a/b")
    assert "is not a namespace" in usage_error(capsys, *url, "--namespace", "a")
    for wrong in (
        "localhost:8080",
        "pulsar://localhost:6650",
        "http://",
        "http://[x",
        "http://bob:pw@host:8080",
    ):
        assert "the admin URL" in usage_error(capsys, "subscriptions", "--admin-url", wrong)


@pytest.mark.parametrize("number", ["0", "-1"])
def test_a_number_of_messages_to_show_is_above_zero(capsys, number):
    assert "Give -n 1 or more" in usage_error(capsys, "peek", "t", "-n", number)


def test_nobody_listens(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    assert main(["subscriptions", "--admin-url", url]) == 1
    out, err = capsys.readouterr()
    assert err.startswith(f"pulsar_spark: [PULSAR_CONNECT] the admin service at {url} does not answer")
    assert out == ""


def test_it_runs_without_pyspark():
    code = "import sys; sys.modules['pyspark'] = None; from pulsar_spark.cli import main; main(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "subscriptions" in done.stdout


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "pulsar_spark", "subscriptions", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--checkpoint" in done.stdout


def test_unused_is_what_no_checkpoint_names_and_no_query_holds_anywhere():
    def found(uuid, partition, connected):
        topic = TopicName.parse("t").of_partition(partition)
        return Found(f"spark-pulsar-{uuid}", topic, connected, 5)

    free = [found(UUID, 0, False), found(UUID, 1, False)]
    held = [found(OTHER, 0, False), found(OTHER, 1, True)]
    assert unused_of([*free, *held], {}) == free
    assert unused_of([*free, *held], {UUID: Path("checkpoint")}) == []
