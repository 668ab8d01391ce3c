"""What holds for every test: reproducible hypothesis runs, and no thread left behind."""

import gc
import importlib
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

# Machines that build several things at once are slow at random, so time is not judged;
# a failing example is printed so that it can be repeated, and nothing is written into the checkout. The many
# examples are those of `integration hostile`; each test here has its small part of two minutes.
settings.register_profile(
    "pulsar",
    max_examples=25,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# For those who only want to know whether a test fails: to find its smallest example may take minutes.
settings.register_profile(
    "unshrunk", settings.get_profile("pulsar"), phases=(Phase.explicit, Phase.generate), print_blob=False
)
# Where a corner of the versions is tried: whether libraries do the same needs few examples.
settings.register_profile("few", settings.get_profile("pulsar"), max_examples=5)
settings.load_profile(os.environ.get("PULSAR_SPARK_HYPOTHESIS_PROFILE", "pulsar"))

_GRACE = 60.0
_ROOT = Path(__file__).resolve().parents[1]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    """Let each process make a part of pytest's bytecode of the tests first: all of it takes 12 s."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    folders = [Path(each).resolve() for each in session.config.args]
    files = sorted(file for folder in folders for file in folder.rglob("test_*.py")) if count > 1 else []
    for file in files[number::count]:
        # The error of a file that cannot be imported is reported when it is collected.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(_ROOT).with_suffix("").parts))


def pytest_collection_finish():
    """Exempt what stays until the end, 360,000 objects, from garbage collection."""
    gc.freeze()


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """Fail a test that leaves a thread running; one that is about to end may take a moment for it."""
    before = set(threading.enumerate())
    yield
    until = time.monotonic() + _GRACE
    left = set(threading.enumerate()) - before
    while left and time.monotonic() < until:
        next(iter(left)).join(0.05)
        left = set(threading.enumerate()) - before
    assert not left, f"threads left running: {sorted(thread.name for thread in left)}"
