"""Options as users give them, with what every query needs, and what becomes of them."""

import pytest

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.parse import parse_sink, parse_source

URL = {"service.url": "pulsar://localhost:6650"}


def dotted(options):
    return {name.replace("_", "."): text for name, text in options.items()}


def source(mode=Mode.STREAM, /, **options):
    """The options of a source of the topic ``t``; ``_`` stands for the dots of names."""
    return parse_source({**URL, "topic": "t", **dotted(options)}, mode)


def sink(**options):
    """The options of a sink; ``_`` stands for the dots of names."""
    return parse_sink({**URL, **dotted(options)})


def refused(match, mode=Mode.STREAM, /, **options):
    """Check that a source with these options is an error, with advice."""
    with pytest.raises(OptionError, match=match) as caught:
        source(mode, **options)
    assert caught.value.advice
