"""A test that is skipped fails where CI is set: what it needs is there, or it is one of the long tests."""

import os
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        _, _, reason = report.longrepr
        report.outcome, report.longrepr = "failed", f"{reason} (no test is skipped where CI is set)"
    return report
