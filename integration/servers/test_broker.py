"""The launcher of brokers: what other tests take for granted."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from integration.broker import Admin, EmbeddedBrokerError, StandaloneBroker, free_port
from integration.broker.waiting import HANG, wait_until
from integration.helpers.cluster import TEST_JVM, choose_source
from integration.helpers.peer import Peer, Record
from pulsar_spark_broker.class_archive import make_class_archive
from pulsar_spark_broker.jars import broker_jars, cache_folder, class_archive, pulsar_version
from pulsar_spark_broker.java import java_for
from pulsar_spark_broker.ports import listening_addresses

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def launched(*arguments):
    """Run the launcher as a user does; give the process, the JVM's id, the admin URL and the folder."""
    memory = ["--heap=256m", "--direct-memory=128m"]
    ports = ["--port=0", "--web-port=0"]
    command = [sys.executable, "-m", "pulsar_spark", "broker", *memory, *ports, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as launcher:
        try:
            assert launcher.stdout is not None
            assert re.fullmatch(r"pulsar://127\.0\.0\.1:\d+\n", launcher.stdout.readline())
            admin_url = launcher.stdout.readline().strip()
            jvm, folder = jvm_of(launcher.pid)
            yield launcher, jvm, admin_url, folder
        finally:
            launcher.kill()


def jvm_of(launcher):
    """Return the process id of the broker that belongs to a launcher, and its folder."""
    supervisor = children_of(launcher)[0]
    jvm = children_of(supervisor)[0]
    config = re.search(r"--config=(\S+)/broker\.conf", process_line(jvm))
    assert config
    return jvm, Path(config[1])


def children_of(process):
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = (line.split() for line in listed.stdout.splitlines())
    return [int(pid) for pid, parent in pairs if int(parent) == process]


def process_line(process):
    return subprocess.run(
        ["ps", "-ww", "-p", str(process), "-o", "command="], capture_output=True, text=True, check=False
    ).stdout


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_nobody_but_this_machine_can_connect(broker_factory):
    broker = broker_factory({})
    addresses = listening_addresses(broker.pid)
    assert len(addresses) >= 3  # broker, admin service, bookie
    assert set(addresses) <= {"127.0.0.1", "::1"}
    with socket.create_server(("", 0)):
        assert "0.0.0.0" in listening_addresses(os.getpid())


@pytest.mark.long
def test_it_is_of_the_version_that_was_asked_for(broker_factory):
    assert broker_factory().admin.version() == pulsar_version()


@pytest.mark.long
def test_data_outlives_the_launcher_on_other_ports(broker_factory, topic, tmp_path):
    first, records = broker_factory(data_dir=tmp_path / "data"), [Record(b"1"), Record(b"2")]
    with Peer(first.service_url) as peer:
        peer.produce(topic, records)
    first.close()
    second = broker_factory(data_dir=tmp_path / "data")
    with Peer(second.service_url) as peer:
        assert peer.read_all(topic) == records
    for name in ("broker.conf", "broker.log"):  # settings hold secrets
        assert (tmp_path / "data" / name).stat().st_mode & 0o777 == 0o600


def test_a_bad_setting_shows_the_end_of_the_log():
    broker = StandaloneBroker({"maxMessageSize": "many"}, jvm=TEST_JVM)
    with pytest.raises(EmbeddedBrokerError, match=r"failed to start(.|\n)*NumberFormatException"), broker:
        pass


def test_no_answer_shows_the_end_of_the_log():
    broker = StandaloneBroker(jvm=TEST_JVM, start_timeout=0.5)
    with pytest.raises(EmbeddedBrokerError, match=r"did not answer within 0\.5 s"), broker:
        pass
    assert not broker.running


@pytest.mark.long
def test_a_port_taken_meanwhile_is_replaced(monkeypatch):
    with socket.create_server(("127.0.0.1", free_port())) as other:
        taken = other.getsockname()[1]
        # The broker's port, its web port and its bookie's, in three first choices.
        choices = iter([taken, free_port(), free_port(), free_port(), taken, free_port()])
        monkeypatch.setattr(
            "pulsar_spark_broker.standalone.free_port", lambda: next(choices, None) or free_port()
        )
        with StandaloneBroker(jvm=TEST_JVM) as broker:
            assert broker.admin.healthy()
            assert next(choices, None) is None


@pytest.mark.long
def test_a_broker_starts_with_the_classes_that_are_kept():
    make_class_archive()
    archive = class_archive(java_for(pulsar_version()), broker_jars())
    with StandaloneBroker(jvm=TEST_JVM) as broker:
        assert str(archive) in Path(f"/proc/{broker.pid}/maps").read_text()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_stops_cleanly(number):
    with launched("--set", "maxMessageSize=102400") as (launcher, jvm, admin_url, folder):
        settings = Admin(admin_url).request("GET", "brokers/configuration/runtime")
        assert settings["maxMessageSize"] == "102400"
        for name in ("brokerDeduplicationEnabled", "transactionCoordinatorEnabled"):
            assert settings[name] == "true"
        launcher.send_signal(number)
        assert launcher.wait(HANG) == 0
        assert process_line(jvm) == ""
        assert not folder.exists()


@pytest.mark.long
def test_the_command_listens_where_it_is_told_to():
    port, web_port = free_port(), free_port()
    with launched(f"--port={port}", f"--web-port={web_port}") as (_, _, admin_url, _):
        assert admin_url == f"http://127.0.0.1:{web_port}"
        settings = Admin(admin_url).request("GET", "brokers/configuration/runtime")
        assert settings["brokerServicePort"] == f"Optional[{port}]"  # as Java shows it


def test_the_command_says_which_port_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [sys.executable, "-m", "pulsar_spark", "broker", "--port", str(port)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"port {port} cannot be had (Address already in use)" in done.stderr
    assert "--port" in done.stderr


@pytest.mark.long
def test_nothing_stays_when_the_launcher_is_killed():
    with launched() as (launcher, jvm, _, folder):
        launcher.kill()
        launcher.wait()
        wait_until(lambda: process_line(jvm) == "")
        wait_until(lambda: not folder.exists())


@pytest.mark.long
def test_the_command_says_when_the_broker_died():
    with launched() as (launcher, jvm, _, folder):
        os.kill(jvm, signal.SIGKILL)
        assert launcher.wait(HANG) == 1
        assert not folder.exists()


@pytest.mark.long
@pytest.mark.parametrize("maven_installed", [True, False])
def test_a_broken_cache_heals(tmp_path, monkeypatch, maven_installed):
    originals = broker_jars()
    if not maven_installed:
        found = shutil.which
        monkeypatch.setattr(shutil, "which", lambda name: None if name == "mvn" else found(name))
    # Hard links cost nothing; jars are replaced, never written to, so the shared cache stays whole.
    shutil.copytree(cache_folder() / "m2", tmp_path / "m2", copy_function=os.link)
    jars = [tmp_path / jar.relative_to(cache_folder()) for jar in originals]
    for jar, damage in zip(jars[:3], (b"", b"broken", None), strict=True):
        jar.unlink()
        if damage is not None:
            jar.write_bytes(damage)
    (tmp_path / f"conf-jars-{pulsar_version()}.json").write_text("{broken")
    assert broker_jars(tmp_path) == jars
    assert all(
        jar.read_bytes() == original.read_bytes() for jar, original in zip(jars, originals, strict=True)
    )
    assert jars[3].samefile(originals[3])  # What was whole was not fetched again.
    assert not jars[2].samefile(originals[2])


def test_a_given_cluster_is_used(cluster, monkeypatch):
    choose = choose_source.__wrapped__  # Without what the session chose.
    monkeypatch.setenv("PULSAR_SPARK_TEST_SERVICE_URL", cluster.service_url)
    monkeypatch.delenv("PULSAR_SPARK_TEST_ADMIN_URL", raising=False)
    with pytest.raises(ValueError, match="set both"):
        choose()
    monkeypatch.setenv("PULSAR_SPARK_TEST_ADMIN_URL", cluster.admin_url)
    source = choose()
    assert source.description == f"{cluster.admin.version()}, running at {cluster.service_url}"
    with source.open() as given:
        assert given == cluster
