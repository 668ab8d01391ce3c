"""A copy by TLS and with a token, while brokers restart one by one and their certificate is replaced."""

import sys
from collections import Counter
from pathlib import Path

import pulsar
import pytest

from integration.broker.pulsar_cluster import PulsarCluster
from integration.broker.waiting import wait_until
from integration.chaos.messages import numbered
from integration.deploy.copy_in_runs import __file__ as copy_in_runs
from integration.deploy.environments import Environment
from integration.deploy.submit import Submission
from integration.helpers.local_spark import ROOT
from integration.helpers.peer import Peer
from integration.helpers.secrets_driver import documented_redaction
from integration.helpers.secured import ADMIN, Authority, TokenMaker, secured_settings
from pulsar_spark_broker.standalone import ONCE_SETTINGS

ROWS = 10_000  # before each restart
TOPIC = "persistent://public/default/restarts"
COPY = f"{TOPIC}-copy"


@pytest.mark.long
def test_a_copy_by_tls_over_a_rolling_restart(tmp_path):
    """Each row is copied once, and no log has the token; brokers are ended as an operator ends them."""
    authority, tokens = Authority(tmp_path, "authority"), TokenMaker()
    server = authority.issue("broker", host="127.0.0.1")
    token = tokens.token(ADMIN)
    home = tmp_path / "home"
    home.mkdir()
    with PulsarCluster(secured_settings(authority, tokens, server) | ONCE_SETTINGS, brokers=2) as cluster:
        for name in (TOPIC, COPY):
            cluster.admin.create_partitioned_topic(name, 4)
        client = {
            "tlsTrustCertsFilePath": authority.file,
            "tlsHostnameVerificationEnable": "true",
            "authPluginClassName": "token",
            "authParams": f"token:{token}",
        }
        options = [
            f"{side}pulsar.client.{name}={text}" for side in ("", "sink.") for name, text in client.items()
        ]
        url = cluster.tls_service_url
        given = [url, TOPIC, COPY, str(home), "default", "maxMessagesPerTrigger=1000", *options]
        settings = documented_redaction() | {"spark.log.level": "INFO"}
        restarts = cluster.brokers * 2
        with (
            Peer(
                url,
                authentication=pulsar.AuthenticationToken(token),
                tls_trust_certs_file_path=authority.file,
            ) as peer,
            Submission(
                Environment(Path(sys.executable).parent.parent),
                home,
                "local[2]",
                Path(copy_in_runs),
                *(f"--conf={name}={value}" for name, value in settings.items()),
                given=given,
                variables={"PYTHONPATH": str(ROOT)},
            ) as submission,
        ):
            for turn, broker in enumerate(restarts):
                peer.produce(TOPIC, numbered(ROWS, first=turn * ROWS, keys=7), batch_size=100)
                before = batches(home)
                wait_until(lambda before=before: submission.is_running() and batches(home) > before)
                broker.stop()
                authority.issue("broker", host="127.0.0.1")  # in the files of the one before
                broker.start()
            (home / "stop").touch()
            submission.finish()
            sent = Counter((each.key, each.value) for each in numbered(len(restarts) * ROWS, keys=7))
            assert Counter((each.key, each.value) for each in peer.read_all(COPY)) == sent
    log = (home / "err.log").read_bytes()
    assert b"pulsar_spark" in log, "there is nothing to be seen"
    assert [file for file in home.rglob("*") if file.is_file() and token.encode() in file.read_bytes()] == []


def batches(home):
    """How many micro-batches were planned."""
    return sum(each.name.isdigit() for each in (home / "checkpoint" / "offsets").glob("*"))
