"""What leaves the package at Spark's boundary: an error's text, and of its traceback only the way out."""

import logging
import pickle
import traceback

import pytest

from pulsar_spark.errors import AuthError, OptionError, PulsarError
from pulsar_spark.spark.short_errors import short_errors, with_short_errors

DEPTH = 20


def fail(error, depth=DEPTH):
    """Raise it from deep within, with a cause and a context."""
    if depth:
        fail(error, depth - 1)
    try:
        raise OSError("the reason below")
    except OSError as cause:
        raise error from cause


class Source:
    """With methods as Spark calls them."""

    @short_errors
    def plan(self, error, *, topic=None):
        """Of the method itself."""
        fail(error)

    @short_errors
    def double(self, number):
        return 2 * number

    def rows(self, error):
        def given():
            try:
                yield 1
                fail(error)
            finally:
                self.is_closed = True

        self.is_closed = False
        return with_short_errors(given())


def lines_of(action):
    """What Spark prints of what an action raises, and the exception."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller looks
        action()
    return "".join(traceback.format_exception(caught.value)).splitlines(), caught.value


@pytest.mark.parametrize("way", ["method", "iterator"])
def test_neither_frames_nor_causes_leave(way, caplog):
    source, error = Source(), AuthError("no", topic="t")
    if way == "method":
        lines, raised = lines_of(lambda: source.plan(error))
    else:
        lines, raised = lines_of(lambda: list(source.rows(error)))
    assert raised is error
    assert lines[-1] == f"pulsar_spark.errors.AuthError: {error}"
    assert not any("in fail" in line or "OSError" in line for line in lines)
    assert len(lines) < 16


def test_the_rest_is_in_the_log(caplog):
    with caplog.at_level(logging.DEBUG, "pulsar_spark"):
        lines_of(lambda: Source().plan(OptionError("no")))
    assert "in fail" in caplog.text
    assert "the reason below" in caplog.text


@pytest.mark.parametrize("error", [ValueError("of user code"), AssertionError(), SystemExit(0)])
def test_what_is_no_error_of_ours_keeps_its_traceback(error):
    for action in (lambda: Source().plan(error), lambda: list(Source().rows(error))):
        with pytest.raises(type(error)) as caught:
            action()
        lines = "".join(traceback.format_exception(caught.value))
        assert "in fail" in lines
        assert "the reason below" in lines


def test_what_goes_well_is_as_it_is():
    source = Source()
    assert source.double(21) == 42
    rows = source.rows(PulsarError("never"))
    assert next(rows) == 1
    rows.close()
    assert source.is_closed


def test_a_method_stays_what_it_is():
    assert Source.plan.__doc__ == "Of the method itself."
    assert pickle.loads(pickle.dumps(Source())).double(1) == 2
