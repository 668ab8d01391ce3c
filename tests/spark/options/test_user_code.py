import os.path

import pytest

from pulsar_spark.client import ProducerInterceptor
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.user_code import load_class, load_function

HERE = __name__
METHODS = ("before_send", "on_send_acknowledgement")


class Called:
    """Says that it was called."""

    def __init__(self):
        raise AssertionError("it was called")

    def before_send(self, columns):
        """One of the two methods."""


class Object:
    def __call__(self, keys, partitions):
        """As a function of two arguments."""


class_object, text = Object(), "text"


def none():
    """A function without arguments."""


def test_a_function_is_found():
    assert load_function("messageRouter", "os.path.join") is os.path.join
    assert load_function("messageRouter", f"{HERE}.class_object") is class_object


def test_a_class_is_found():
    name = "pulsar_spark.ProducerInterceptor"
    assert load_class("interceptors", name, *METHODS) is ProducerInterceptor


@pytest.mark.parametrize("name", ["no_such_package.function", "os.path.no_such_function", "os.no_such.f"])
def test_a_name_that_is_not_there(name):
    with pytest.raises(OptionError, match=rf"option messageRouter is {name}, and there is .*--py-files"):
        load_function("messageRouter", name)
    with pytest.raises(OptionError, match=rf"option interceptors is {name}, and there is .*--py-files"):
        load_class("interceptors", name, *METHODS)


@pytest.mark.parametrize(
    "name", ["os.sep", "os.system", "os.abort", "subprocess.Popen", f"{HERE}.none", f"{HERE}.Called"]
)
def test_what_is_no_function_of_two_arguments_is_not_called(name):
    with pytest.raises(OptionError, match=rf"{name}, which is not a function of 2 arguments"):
        load_function("messageRouter", name)


@pytest.mark.parametrize("name", ["os.sep", "os.abort", f"{HERE}.none", f"{HERE}.Called", f"{HERE}.text"])
def test_what_is_no_class_with_the_methods_is_not_called(name):
    with pytest.raises(OptionError, match=rf"{name}, which is not a class with the methods before_send and"):
        load_class("interceptors", name, *METHODS)
