"""All programs of the README and of the users' pages, page by page, in order, word for word.

A page's code is run in one namespace on a broker of its own, whose topics nobody else has; only addresses and
folders have others in their place. `test_every_page_with_code_is_run` finds a page that is left out.
Pages of a first day are in the test command, the others in the long one.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import pulsar_spark
from integration.broker import Admin, StandaloneBroker
from integration.docs import ROOT, Block, blocks
from integration.helpers.cluster import TEST_JVM
from integration.helpers.crypto_keys import make_keys
from integration.helpers.peer import Peer, Record
from integration.helpers.proxies import SniProxy
from integration.helpers.secured import Authority, open_secured, outside_settings
from integration.helpers.versions import NEWEST_LINE
from pulsar_spark import cli
from pulsar_spark_broker.jars import VERSION_VARIABLE
from pulsar_spark_broker.java import java
from pulsar_spark_broker.ports import free_port
from pulsar_spark_broker.standalone import ONCE_SETTINGS

URL, ADMIN_URL = "pulsar://localhost:6650", "http://localhost:8080"
# Programs that are run in the page's folder; for `protoc` that of the development environment.
_TOOLS = {
    "echo": ["echo"],
    "keytool": [str(Path(java()).resolve().with_name("keytool"))],
    "openssl": ["openssl"],
    "protoc": [sys.executable, "-m", "grpc_tools.protoc", "-I."],
}
# Not run here. Docker is not everywhere; environments are made, and clusters started, by
# test_quickstart.py (README, quickstart, deploying) and `python -m integration deploy`.
_ELSEWHERE = {"docker", "pip", "python", "python3", "spark-submit", ".", "export"}
# What only a whole start of a broker can show: test_quickstart.py, and the fixtures here.
_BROKER = ["pulsar_spark", "broker"]
_FOLDER = re.compile(r"(?<!\w)/(tmp|etc|data)/")
_PASSWORD = "store-password"


@dataclass
class Page:
    """A page and what it is run with.

    Attributes:
        folder: for its files; `/tmp/` and others become folders of it.
        places: what is replaced, besides the addresses and folders, and with it.
    """

    file: Path
    spark: SparkSession
    broker: StandaloneBroker
    folder: Path
    names: dict[str, Any]
    places: dict[str, str] = field(default_factory=dict)

    @property
    def admin(self) -> Admin:
        return self.broker.admin

    def place(self, path: str) -> Path:
        """A path of the page, whose folder is made."""
        here = Path(self._here(path))
        here.parent.mkdir(parents=True, exist_ok=True)
        return here

    def write(self, rows: list[tuple[Any, ...]], schema: str, topic: str, **options: str) -> None:
        """Write rows, in their order, with the package itself."""
        frame = self.spark.createDataFrame(rows, schema).coalesce(1)
        here = {"service.url": self.broker.service_url, "topic": topic}
        frame.write.format("pulsar").options(**here, **options).mode("append").save()

    def read(self, topic: str) -> list[Record]:
        with Peer(self.broker.service_url) as peer:
            return peer.read_all(topic)

    def run(self, capsys: pytest.CaptureFixture[str], end: str = "") -> None:
        """Run all its blocks, or those before a heading; what a table shows must be what is printed."""
        text = self.file.read_text()
        last = text[: text.index(f"\n{end}\n")].count("\n") if end else sys.maxsize
        printed = ""
        for block in blocks(self.file, "python", "sh", "text"):
            if block.line > last:
                return
            if block.language == "text":
                if printed and block.text.startswith(("+--", "root")):
                    assert printed.startswith(block.text), f"{block.place}:\n{printed}"
                continue
            capsys.readouterr()
            run = self._run_python if block.language == "python" else self._run_shell
            run(block)
            printed = capsys.readouterr().out

    def _run_python(self, block: Block) -> None:
        exec(compile(self._here(block.text), block.place, "exec"), self.names)
        for query in self.spark.streams.active:  # a page's queries run for ever
            query.processAllAvailable()
            query.stop()

    def _run_shell(self, block: Block) -> None:
        for line in self._here(f"{block.text}\n").replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            name = words[0].rpartition("/")[2] if words else "."
            if name in _ELSEWHERE or [name, *words[1:2]] == _BROKER:
                continue
            if name == "pulsar_spark":
                if words[1] in ("admin", "subscriptions") and "--admin-url" not in words:
                    words += ["--admin-url", self.broker.admin_url]
                assert cli.main(words[1:]) == 0, f"{block.place}: {line}"
            else:
                self.command(words)

    def command(self, words: Sequence[str]) -> None:
        """Run a program in the page's folder."""
        command = [*_TOOLS[words[0]], *words[1:]]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    def _here(self, text: str) -> str:
        own = {URL: self.broker.service_url, ADMIN_URL: self.broker.admin_url}
        for place, other in (own | self.places).items():
            text = text.replace(place, other)
        return _FOLDER.sub(rf"{self.folder}/\1/", text)


@pytest.fixture(scope="module")
def broker() -> Iterator[StandaloneBroker]:
    with StandaloneBroker(ONCE_SETTINGS, jvm=TEST_JVM) as opened:
        yield opened


@pytest.fixture(scope="module")
def newest() -> Iterator[StandaloneBroker]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VERSION_VARIABLE, NEWEST_LINE)
        with StandaloneBroker(jvm=TEST_JVM) as opened:
            yield opened


@pytest.fixture
def page(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Page]:
    """The page that the test's name ends with; afterwards its topics and tables are gone."""
    name = request.node.originalname.removeprefix("test_")
    file = ROOT / ("README.md" if name == "readme" else f"docs/{name.replace('_', '-')}.md")
    broker: StandaloneBroker = request.getfixturevalue("newest" if name == "pulsar5" else "broker")
    own = spark.newSession()
    yield Page(file, own, broker, tmp_path, {"spark": own})
    for table in own.catalog.listTables():
        own.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} {table.name}")
    for topic in broker.admin.topics():
        broker.admin.delete_topic(topic)


def records(*rows: tuple[str, str]) -> list[Record]:
    return [Record(value.encode(), key=key) for key, value in rows]


def first(rows: Any) -> list[Any]:
    """The first column of a batch."""
    return sorted(row[0] for row in rows.collect())


def test_every_page_with_code_is_run() -> None:
    """Deploying is run by test_quickstart.py, because it makes environments."""
    with_code = {
        file.stem.lower().replace("-", "_")
        for file in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
        if blocks(file, "python", "sh")
    }
    assert with_code - {name.removeprefix("test_") for name in globals()} == {"deploying"}


def test_readme(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.run(capsys)


def test_index(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    """It includes a program, which is that of the README."""
    (program,) = blocks(ROOT / "README.md", "python")
    assert (ROOT / "examples" / "first.py").read_text().endswith(f"\n{program.text}\n")
    assert blocks(page.file, "text")[-1].text == blocks(ROOT / "README.md", "text")[-1].text
    page.run(capsys)


def test_quickstart(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.places['"checkpoints/'] = f'"{page.folder}/'
    page.run(capsys)


@pytest.mark.long
def test_encryption(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    keys = page.place("/etc/pulsar/keys/x").parent
    names = {"rsa": "billing", "other": "audit"}
    for key in make_keys(keys).iterdir():
        name, _, rest = key.name.partition(".")
        key.rename(keys / f"{names.get(name, name)}.{rest}")
    page.names["rows"] = page.spark.createDataFrame([("ann", "secret")], "__key string, value string")
    page.names["read_from_vault"] = {"billing/public": b"PEM"}.__getitem__
    page.run(capsys)
    query = page.names["invoices"].writeStream.format("memory").queryName("invoices")
    query.trigger(availableNow=True).start().awaitTermination()
    # It starts at `latest`, so it has only what comes later.
    assert page.spark.table("invoices").count() == 0
    assert (page.folder / "billing.public.pem").read_text().startswith("-----BEGIN PUBLIC KEY")
    vault = page.names["VaultKeys"]()
    assert vault.get_public_key("billing", {}).key == b"PEM"
    with pytest.raises(pulsar_spark.CryptoError, match="the vault has no audit/public"):
        vault.get_public_key("audit", {})
    reader = page.spark.read.format("pulsar").option("service.url", page.broker.service_url)
    stored = reader.option("topic", "invoices").option("pulsar.reader.cryptoFailureAction", "CONSUME")
    (entry,) = stored.load().collect()
    assert b"secret" not in entry.value


@pytest.mark.long
def test_migration(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.names["orders"] = page.spark.createDataFrame([(1, "tea")], "id long, item string")
    page.run(capsys)
    assert [tuple(row) for row in page.names["rows"].collect()] == [("1", '{"id":1,"item":"tea"}')]


@pytest.mark.long
def test_monitoring(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.places["4050"] = str(free_port())
    try:
        page.run(capsys)
        with urllib.request.urlopen(f"http://127.0.0.1:{page.places['4050']}/metrics") as answer:
            assert answer.status == 200
    finally:
        page.names["listener"].close()
        page.spark.streams.removeListener(page.names["listener"])


@pytest.mark.long
def test_operations(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.write([("ann", "tea")], "__key string, value string", "orders")
    page.admin.create_topic("persistent://public/default/order-counts")
    page.admin.create_subscription("persistent://public/default/orders", "old-orders")
    stream = page.spark.readStream.format("pulsar").option("service.url", page.broker.service_url)
    writer = stream.option("topic", "orders").option("startingOffsets", "earliest").load().writeStream
    checkpoint = str(page.place("/data/checkpoints/old"))
    page.names["old"] = writer.format("noop").option("checkpointLocation", checkpoint).start()
    page.names["old"].processAllAvailable()
    page.run(capsys)
    assert sorted(record.value for record in page.read("orders")) == [b"new", b"tea"]
    assert page.admin.partitions("persistent://public/default/large-orders") == 4
    subscriptions = page.admin.durable_subscriptions("persistent://public/default/orders")
    assert len(subscriptions) == 1  # old-orders is removed, that of the checkpoint stays


@pytest.mark.long
def test_troubleshooting(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.run(capsys)


@pytest.mark.long
def test_recipes(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    """Up to Delta; that and Iceberg are run by `python -m integration deploy`."""
    sent = [("ann", "eu"), ("bob", "us"), ("ann", "eu")]
    orders = records(
        *((key, json.dumps({"id": n, "region": region})) for n, (key, region) in enumerate(sent)),
        ("zoe", "what?"),
    )
    with Peer(page.broker.service_url) as peer:
        peer.produce("orders", orders)
    page.run(capsys, end="## Delta Lake")
    names = page.names
    assert page.read("mirror") == orders
    assert page.spark.read.parquet(str(page.place("/tmp/orders-parquet"))).count() == 4
    assert page.spark.read.parquet(str(page.place("/tmp/orders-by-batch"))).count() == 4
    assert names["day"].count() == 4
    (payment,) = page.read("payments")
    assert (payment.key, payment.event_time) == ("ann", 1_767_225_600_000)
    assert payment.properties == (("source", "shop"),)
    assert {name: len(page.read(f"orders-{name}")) for name in ("eu", "us", "other")} == {
        "eu": 2,
        "us": 1,
        "other": 1,
    }
    assert page.read("copy-of-orders") == orders
    assert page.read("copy-of-payments") == [payment]
    assert [tuple(row) for row in names["by_customer"].collect()] == [("ann", 2), ("bob", 1), ("zoe", 1)]


def test_schemas(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.place("/tmp/orders.proto")
    page.run(capsys)
    names = page.names
    assert first(names["some"]) == [1, 2, 3]
    assert sorted(row.item for row in names["good"].collect()) == ["milk", "rice", "tea"]
    assert names["bad"].count() == 0
    assert [tuple(row) for row in names["rows"].collect()] == [(1, 1, "tea", 10)]
    assert first(names["deleted"]) == [2]
    assert first(names["events"]) == [7]
    assert first(names["shop"]) == [7]


@pytest.mark.long
def test_security(page: Page, capsys: pytest.CaptureFixture[str], tmp_path_factory: Any) -> None:
    """On a broker with TLS, a second listener and a proxy; it lets everybody in."""
    host = "broker-1.example.com"
    settings = outside_settings(host) | {"authenticationEnabled": "false", "authorizationEnabled": "false"}
    tls = settings["brokerServicePortTls"]
    with (
        open_secured(tmp_path_factory.mktemp("secured"), settings, name=host) as secured,
        SniProxy(host, f"pulsar+ssl://127.0.0.1:{tls}") as proxy,
        Peer(secured.tls_url, tls_trust_certs_file_path=secured.authority.file) as peer,
    ):
        peer.produce("orders", records(("ann", "tea")))
        page.places |= {
            "pulsar+ssl://broker.example.com:6651": secured.tls_url,
            "pulsar+ssl://pulsar.example.com:6651": secured.tls_url,
            f"pulsar+ssl://{host}:6651": f"pulsar+ssl://{host}:{tls}",
            "pulsar+ssl://proxy.example.com:443": proxy.service_url,
            "PKCS12\n": f"PKCS12 -srcstorepass {_PASSWORD} -deststorepass {_PASSWORD}\n",
        }
        make_stores(page, secured.authority)
        page.names["read_from_vault"] = str.encode
        page.run(capsys)
        assert page.names["orders"].count() == 1
        trust = {"pulsar.client.tlsTrustCertsFilePath": secured.authority.file, "topic": "orders"}
        for name in ("external", "behind_proxy"):
            reader = page.spark.read.format("pulsar").options(**trust, **page.names[name])
            assert reader.load().count() == 1
        assert {hello.host for hello in proxy.seen} == {host}
    assert page.names["VaultToken"]("params").data() == b"params"


def make_stores(page: Page, authority: Authority) -> None:
    """The files that the page names, and a store in JKS."""
    etc = page.place("/etc/pulsar/store-password").parent
    (etc / "store-password").write_text(_PASSWORD)
    shutil.copy(authority.file, etc / "ca.pem")
    client = authority.issue("client")
    key = str(etc / "keystore.p12")
    pem = ("-in", client.certificate, "-inkey", client.key)
    jks = ("-srckeystore", key, "-destkeystore", "keystore.jks", "-deststoretype", "JKS")
    for words in (
        ("openssl", "pkcs12", "-export", *pem, "-out", key, "-passout", f"pass:{_PASSWORD}"),
        ("keytool", "-importkeystore", *jks, "-srcstorepass", _PASSWORD, "-deststorepass", _PASSWORD),
        (
            *("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", authority.file),
            *("-keystore", str(etc / "truststore.p12"), "-storetype", "PKCS12", "-storepass", _PASSWORD),
        ),
    ):
        page.command(words)


@pytest.mark.long
def test_pulsar5(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.run(capsys)
    assert page.names["orders"].isStreaming
    stream = page.names["orders"].writeStream.format("noop").trigger(availableNow=True)
    stream.start().awaitTermination()
