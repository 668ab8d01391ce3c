import os.path

import pytest

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.user_code import load


def test_a_function_is_found():
    assert load("messageRouter", "os.path.join") is os.path.join


@pytest.mark.parametrize("name", ["no_such_package.function", "os.path.no_such_function", "os.no_such.f"])
def test_a_name_that_is_not_there(name):
    with pytest.raises(OptionError, match=rf"option messageRouter is {name}, and there is .*--py-files"):
        load("messageRouter", name)


def test_what_cannot_be_called():
    with pytest.raises(OptionError, match=r"os\.sep, which cannot be called"):
        load("messageRouter", "os.sep")
