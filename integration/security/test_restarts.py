"""A copy by TLS and with a token, while the broker is restarted and its certificate is replaced."""

import sys
from collections import Counter
from pathlib import Path

import pulsar
import pytest

from integration.broker.waiting import wait_until
from integration.chaos.messages import numbered
from integration.deploy.copy_in_runs import __file__ as copy_in_runs
from integration.deploy.environments import Environment
from integration.deploy.submit import Submission
from integration.helpers.local_spark import ROOT
from integration.helpers.peer import Peer
from integration.helpers.secrets_driver import documented_redaction
from integration.helpers.secured import ADMIN, open_secured
from pulsar_spark_broker.standalone import ONCE_SETTINGS

TIMES = 3
ROWS = 10_000  # before each restart
TOPIC = "persistent://public/default/restarts"
COPY = f"{TOPIC}-copy"


@pytest.mark.long
def test_a_copy_by_tls_over_restarts_of_the_broker(tmp_path):
    """Each row is copied once, and no log has the token; the broker is ended as an operator ends it."""
    (tmp_path / "secured").mkdir()
    home = tmp_path / "home"
    home.mkdir()
    with open_secured(tmp_path / "secured", ONCE_SETTINGS) as secured:
        admin = secured.broker.admin
        for name in (TOPIC, COPY):
            admin.create_partitioned_topic(name, 2)
        token = secured.tokens.token(ADMIN)
        client = secured.options(params=f"token:{token}", tlsHostnameVerificationEnable="true")
        options = [f"{side}{name}={text}" for side in ("", "sink.") for name, text in client.items()]
        given = [secured.tls_url, TOPIC, COPY, str(home), "default", "maxMessagesPerTrigger=1000", *options]
        settings = documented_redaction() | {"spark.log.level": "INFO"}
        with (
            Peer(
                secured.tls_url,
                authentication=pulsar.AuthenticationToken(token),
                tls_trust_certs_file_path=secured.authority.file,
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
            for turn in range(TIMES):
                peer.produce(TOPIC, numbered(ROWS, first=turn * ROWS, keys=7), batch_size=100)
                before = batches(home)
                wait_until(lambda before=before: submission.is_running() and batches(home) > before)
                secured.broker.stop()
                secured.authority.issue("broker", host="127.0.0.1")  # in the files of the one before
                secured.broker.start()
            (home / "stop").touch()
            submission.finish()
            sent = Counter((each.key, each.value) for each in numbered(TIMES * ROWS, keys=7))
            assert Counter((each.key, each.value) for each in peer.read_all(COPY)) == sent
    log = (home / "err.log").read_bytes()
    assert b"pulsar_spark" in log, "there is nothing to be seen"
    assert [file for file in home.rglob("*") if file.is_file() and token.encode() in file.read_bytes()] == []


def batches(home):
    """How many micro-batches were planned."""
    return sum(each.name.isdigit() for each in (home / "checkpoint" / "offsets").glob("*"))
