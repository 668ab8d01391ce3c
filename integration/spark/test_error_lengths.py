"""How much a user has to read of an error: lines of the exception, and lines in the driver's log."""

import os
import subprocess
import sys
from typing import NamedTuple

import pytest

from integration.broker.waiting import HANG
from integration.helpers.errors_driver import FAILURES, MARK, Login
from integration.helpers.local_spark import ROOT
from integration.helpers.peer import Record
from integration.helpers.secured import ADMIN, TokenMaker

pytestmark = pytest.mark.long


class Lengths(NamedTuple):
    """Lines: of the exception, up to its code, and of the log."""

    raised: int
    code: int
    logged: int


# With frames of Spark's Python and JVM, which are not ours to shorten.
MOST = {
    "batch-read": Lengths(6, 5, 5),
    "stream-read": Lengths(16, 7, 25),
    "batch-write": Lengths(6, 6, 115),
    "stream-write": Lengths(19, 6, 220),
    "data-loss": Lengths(20, 7, 42),
}


def test_an_error_is_told_in_few_lines(secured, secured_peer, tmp_path, topic):
    secured_peer.produce(topic, [Record(b"%d" % number) for number in range(5)])

    def login(token):
        return {"service.url": secured.tls_url, **secured.options("token", f"token:{token}")}

    given = Login(
        good=login(secured.tokens.token(ADMIN)), wrong=login(TokenMaker().token(ADMIN)), topic=topic
    )
    done = subprocess.run(
        [sys.executable, "-m", "integration.helpers.errors_driver", str(tmp_path)],
        input=given.dump().encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        timeout=5 * HANG,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:].decode(errors="replace")
    logged: dict[str, list[str]] = {}
    for line in done.stdout.decode(errors="replace").splitlines():
        if line.startswith(MARK):
            logged[line.removeprefix(MARK)] = []
        elif logged:
            list(logged.values())[-1].append(line)
    for name, code in FAILURES.items():
        raised = (tmp_path / name).read_text().splitlines()
        place = next(number for number, line in enumerate(raised, 1) if f"[{code}]" in line)
        most = MOST[name]
        print(f"{name}: {len(raised)} lines, the code in line {place}, {len(logged[name])} lines in the log")
        assert len(raised) <= most.raised, raised
        assert place <= most.code, raised
        assert len(logged[name]) <= most.logged, logged[name]
        ours = [line for line in raised if 'File "' in line and "pulsar_spark" in line]
        assert all("short_errors.py" in line for line in ours), ours
