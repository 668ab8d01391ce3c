"""The launcher and the peer, with real brokers: what other tests take for granted."""

import base64
import hmac
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pulsar
import pytest

from integration.broker import Admin, AdminError, EmbeddedBrokerError, StandaloneBroker, free_port
from integration.broker.waiting import HANG, wait_until
from integration.helpers.cluster import TEST_JVM, choose_source
from integration.helpers.peer import CompressionType, Peer, Record
from integration.helpers.proxy import Direction
from pulsar_spark_broker.class_archive import make_class_archive
from pulsar_spark_broker.jars import broker_jars, cache_folder, class_archive, pulsar_version
from pulsar_spark_broker.java import java_for
from pulsar_spark_broker.ports import listening_addresses

ROOT = Path(__file__).resolve().parents[2]

MIXED = [
    Record(b"plain"),
    Record(b"", key="empty value"),
    Record(None, key="null value"),
    Record(b"all", key="k\u00e9y", properties=(("a", "1"), ("b", "\u00e9")), event_time=1_700_000_000_123),
    Record(bytes(range(256)) * 8, properties=(("p", ""),)),
]


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


def test_peer_reads_what_it_wrote(cluster, topic):
    with Peer(cluster.service_url) as peer:
        ids = peer.produce(topic, MIXED)
        peer.produce(topic, MIXED, batch_size=3)
        assert peer.read_all(topic) == MIXED * 2
    assert len({(message_id.ledger_id(), message_id.entry_id()) for message_id in ids}) == len(MIXED)


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
@pytest.mark.parametrize("batch_size", [0, 10])
def test_peer_codecs(cluster, topic, codec, batch_size):
    # No empty value: the C++ client drops what itself wrote with ZLib and nothing in it.
    records = [Record(b"abc" * number) for number in range(1, 26)]
    with Peer(cluster.service_url) as peer:
        peer.produce(topic, records, batch_size=batch_size, compression=getattr(CompressionType, codec))
        assert peer.read_all(topic) == records


def test_peer_partitions_and_batches(cluster, admin, topic):
    admin.create_partitioned_topic(topic, 3)
    records = [Record(b"%d" % number, key=f"k{number % 7}") for number in range(70)]
    with Peer(cluster.service_url) as peer:
        ids = peer.produce(topic, records, batch_size=4)
        found = peer.read_all(topic)
    assert {message_id.partition() for message_id in ids} == {0, 1, 2}
    assert len(found) == 70
    for key in {record.key for record in records}:
        assert [r.value for r in found if r.key == key] == [r.value for r in records if r.key == key]
        assert len({r.partition for r in found if r.key == key}) == 1


@pytest.mark.long
def test_peer_chunks(broker_factory, topic):
    broker = broker_factory({"maxMessageSize": "102400"})
    records = [Record(os.urandom(500_000)), Record(b"small")]
    with Peer(broker.service_url) as peer:
        peer.produce(topic, records, chunking_enabled=True)
        assert peer.read_all(topic) == records
    assert broker.admin.internal_stats(topic)["numberOfEntries"] > 5


def test_admin(cluster, admin, topic):
    admin.create_topic(topic)
    assert topic in admin.topics()
    assert admin.partitions(topic) == 0
    admin.create_subscription(topic, "a/b c")
    with Peer(cluster.service_url) as peer:
        peer.produce(topic, [Record(b"1"), Record(b"2")])
    assert admin.subscriptions(topic) == ["a/b c"]
    assert admin.backlog(topic, "a/b c") == 2
    assert admin.stats(topic)["msgInCounter"] == 2
    admin.unload(topic)
    admin.delete_subscription(topic, "a/b c")
    assert admin.subscriptions(topic) == []
    admin.terminate(topic)
    with pytest.raises(AdminError, match="This topic already exists") as refusal:
        admin.create_topic(topic)
    assert refusal.value.status == 409
    admin.delete_topic(topic)
    assert topic not in admin.topics()


def test_admin_partitioned_topics(admin, topic):
    admin.create_partitioned_topic(topic, 2)
    admin.grow_partitioned_topic(topic, 4)
    assert admin.partitions(topic) == 4
    assert len(admin.partitioned_stats(topic)["partitions"]) == 4
    admin.delete_partitioned_topic(topic)
    assert not any(name.startswith(topic) for name in admin.topics())


def test_admin_namespaces(admin, topic):
    namespace = f"public/{topic.rpartition('/')[2]}"
    admin.create_namespace(namespace)
    admin.set_deduplication(namespace, True)
    admin.set_retention(namespace, minutes=-1, megabytes=-1)
    admin.set_backlog_quota(namespace, limit_bytes=1000, policy="producer_exception")
    policies = admin.request("GET", f"namespaces/{namespace}")
    assert policies["deduplicationEnabled"] is True
    assert policies["retention_policies"] == {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert policies["backlog_quota_map"]["destination_storage"]["policy"] == "producer_exception"
    admin.unload_namespace(namespace)
    admin.delete_namespace(namespace)
    assert namespace not in admin.namespaces()


@pytest.mark.long
def test_kill_and_start_again_on_its_data(broker_factory, topic):
    broker = broker_factory()
    urls = broker.service_url, broker.admin_url
    with Peer(broker.service_url) as peer:
        peer.produce(topic, MIXED)
    killed = broker.pid
    broker.kill()
    assert not broker.running
    assert process_line(killed) == ""
    broker.start()
    assert (broker.service_url, broker.admin_url) == urls
    with Peer(broker.service_url) as peer:
        assert peer.read_all(topic) == MIXED
    broker.stop()
    broker.start()
    with Peer(broker.service_url) as peer:
        assert peer.read_all(topic) == MIXED


@pytest.mark.long
def test_two_side_by_side(broker_factory, topic):
    one, two = broker_factory(), broker_factory()
    with Peer(one.service_url) as first, Peer(two.service_url) as second:
        first.produce(topic, [Record(b"one")])
        second.produce(topic, [Record(b"two")])
        assert first.read_all(topic) == [Record(b"one")]
        assert second.read_all(topic) == [Record(b"two")]


@pytest.mark.long
def test_data_outlives_the_launcher_on_other_ports(broker_factory, topic, tmp_path):
    first = broker_factory(data_dir=tmp_path / "data")
    with Peer(first.service_url) as peer:
        peer.produce(topic, MIXED)
    first.close()
    second = broker_factory(data_dir=tmp_path / "data")
    with Peer(second.service_url) as peer:
        assert peer.read_all(topic) == MIXED
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
def test_token_authentication(broker_factory, topic):
    secret = os.urandom(32)
    token = signed_token(secret, "admin")
    broker = broker_factory(
        {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "superUserRoles": "admin",
            "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
            "tokenSecretKey": f"data:;base64,{base64.b64encode(secret).decode()}",
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{token}",
        }
    )
    with Peer(broker.service_url, authentication=pulsar.AuthenticationToken(token)) as peer:
        peer.produce(topic, MIXED)
    assert topic in broker.admin.topics()
    with pytest.raises(AdminError) as refusal:
        Admin(broker.admin_url).topics()
    assert refusal.value.status == 401


def signed_token(secret, role):
    """Return a JSON web token (HS256) for `role`."""
    parts = [b'{"alg":"HS256"}', json.dumps({"sub": role}).encode()]
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    signature = hmac.digest(secret, text, "sha256")
    return b".".join([text, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


@pytest.mark.long
def test_tls(broker_factory, topic, tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    request = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    address = ["-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request.split(), *address, *files], check=True, capture_output=True)
    broker = broker_factory(
        {
            "brokerServicePortTls": "0",
            "webServicePortTls": "0",
            "tlsCertificateFilePath": str(certificate),
            "tlsKeyFilePath": str(key),
        }
    )
    trust = {"tls_trust_certs_file_path": str(certificate), "tls_validate_hostname": True}
    with Peer(broker.tls_service_url, **trust) as peer:
        peer.produce(topic, MIXED)
        assert peer.read_all(topic) == MIXED
    context = ssl.create_default_context(cafile=str(certificate))
    with urllib.request.urlopen(f"{broker.tls_admin_url}/admin/v2/brokers/health", context=context) as answer:
        assert answer.read() == b"ok"


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


@pytest.mark.long
def test_everything_goes_through_the_proxy(proxied_broker, topic):
    proxy = proxied_broker.proxy
    records = [Record(os.urandom(1000)) for _ in range(100)]
    with Peer(proxied_broker.service_url) as peer:
        peer.produce(topic, records)
        assert proxy.forwarded[Direction.TO_BROKER] > 100_000
        assert peer.read_all(topic) == records
        assert proxy.forwarded[Direction.TO_CLIENT] > 100_000
        proxy.cut_all()
        peer.produce(topic, records)
        assert peer.read_all(topic) == records * 2


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
