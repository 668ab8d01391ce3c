"""Parsers of single option values: text -> value, or ValueError with the accepted forms.

Some raise an OptionError instead. No error repeats an option value that may contain a password.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar

from pulsar_spark.client import PROTOCOLS, Address, has_suite, parse_service_url, path_of
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.option import Parser
from pulsar_spark.spark.rows.schema import METADATA_COLUMNS

E = TypeVar("E", bound=Enum)
T = TypeVar("T")

_TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TIME_UNITS |= {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
# A number without a unit is refused below 100 ms or above 10,000 s, because the user may mean another unit.
_MIN_PLAIN_MS, _MAX_PLAIN_S = 100, 10_000
_SIZE_UNITS = {"b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_NUMBER_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")

# Maximum time span, 24 days, because some system calls cannot wait for 2**31 ms.
_MAX_SECONDS = 24 * 86400.0
_MAX_BYTES = 1 << 40


def _accepting(accepts: str) -> Callable[[Callable[[str], T]], Parser[T]]:
    return lambda parse: Parser(accepts, parse)


def seconds(plain_unit: str, minimum: float) -> Parser[float]:
    """Returns a parser of times to seconds, at least ``minimum``; numbers without a unit: ``plain_unit``."""

    def parse(text: str) -> float:
        match = _NUMBER_UNIT.fullmatch(text.lower())
        name = (match[2] or plain_unit) if match else ""
        unit = _TIME_UNITS.get(name) or _TIME_UNITS.get(name.removesuffix("s"))
        if match is None or unit is None:
            raise ValueError(f"a time such as 500ms, 5s, 2m, or a number of {plain_unit}")
        if not match[2]:
            _check_plain(float(text), plain_unit)
        seconds = float(match[1]) * unit
        if seconds < minimum:
            raise ValueError(f"a time of at least {minimum:g} s")
        if seconds > _MAX_SECONDS:
            raise ValueError(f"a time of at most {_MAX_SECONDS / 86400:g}d")
        return seconds

    return Parser(f"time ({plain_unit})", parse)


def _check_plain(number: float, unit: str) -> None:
    if (unit == "ms" and 0 < number < _MIN_PLAIN_MS) or (unit == "s" and number > _MAX_PLAIN_S):
        meant = {"ms": "s", "s": "ms"}[unit]
        raise ValueError(f"a time with its unit, {number:g}{meant} or {number:g}{unit}")


def size(minimum: int) -> Parser[int]:
    """Returns a parser of sizes to bytes, at least ``minimum``."""

    def parse(text: str) -> int:
        match = _NUMBER_UNIT.fullmatch(text.lower())
        unit = _SIZE_UNITS.get(match[2] or "b") if match else None
        if match is None or unit is None:
            raise ValueError("a size such as 512k, 64m, or a number of bytes")
        size = float(match[1]) * unit
        if not minimum <= size <= _MAX_BYTES:
            raise ValueError(f"a size of {minimum} to {_MAX_BYTES >> 30}g bytes")
        return int(size)

    return Parser("size", parse)


def count(minimum: int) -> Parser[int]:
    """Returns a parser of whole numbers, at least ``minimum``."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text) or int(text) < minimum:
            raise ValueError(f"a whole number from {minimum} to 999999999")
        return int(text)

    return Parser("number", parse)


@_accepting("boolean")
def boolean(text: str) -> bool:
    """Parses true or false in upper or lower case."""
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


@_accepting("text")
def non_empty(text: str) -> str:
    """Accepts any text that is not empty."""
    if not text:
        raise ValueError("text that is not empty")
    return text


def one_of(choices: Mapping[str, T], others: Mapping[str, str] | None = None) -> Parser[T]:
    """Returns a parser of case-insensitive names to their values.

    Args:
        others: values of other connectors, each with the text that the error suggests instead.
    """
    by_name = {name.lower(): choice for name, choice in choices.items()}

    def parse(text: str) -> T:
        if text.lower() not in by_name:
            right = (others or {}).get(text.lower())
            raise ValueError(
                f"one of {', '.join(choices)}" if right is None else f"{right}, in place of {text}"
            )
        return by_name[text.lower()]

    return Parser(", ".join(f"`{name}`" for name in choices), parse)


def member_of(kind: type[E], others: Mapping[str, str] | None = None) -> Parser[E]:
    """Returns a parser of an enum's values to its members; see :func:`one_of`."""
    return one_of({member.value: member for member in kind}, others)


@_accepting("Python name")
def dotted_name(text: str) -> str:
    """Checks the form ``package.module.name`` and returns the text; the name is imported later."""
    parts = text.split(".")
    if parts[0] == "__main__":
        raise ValueError("a name in a module that tasks can import: move it out of the program")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise ValueError("a Python name such as package.module.function")
    return text


@_accepting("Python names")
def dotted_names(text: str) -> tuple[str, ...]:
    """Parses dotted names separated by commas; keeps their order."""
    return tuple(dotted_name(part.strip()) for part in text.split(","))


@_accepting("file, variable")
def place_of_secret(text: str) -> str:
    """Checks that the text names a file or an environment variable with a secret, and returns the text."""
    is_file = text.startswith("file:") or "/" in text
    if not is_file and not re.fullmatch(r"env:\w+", text):
        raise ValueError("a file (PATH/NAME or file:PATH) or an environment variable (env:NAME)")
    return text


@_accepting("path")
def file(text: str) -> str:
    """Parses the path of a file; a relative path is relative to the reading process's working folder."""
    return str(path_of(non_empty(text)))


@_accepting("folder, Python name")
def key_reader(text: str) -> Path | str:
    """Parses the path of a folder of keys, or the dotted name of a class that reads keys."""
    try:
        return dotted_name(text)
    except ValueError as error:
        if "/" not in text and not text.startswith("file:"):
            raise ValueError(f"a folder (PATH/NAME or file:PATH), or {error}") from None
    return path_of(text)


@_accepting("names")
def names(text: str) -> tuple[str, ...]:
    """Parses texts separated by commas; repeated texts count once."""
    given = [part.strip() for part in text.split(",")]
    if not all(given):
        raise ValueError("names separated by commas")
    return tuple(dict.fromkeys(given))


@_accepting("URL")
def service_url(text: str) -> str:
    """Checks ``service.url`` and returns the text."""
    parse_service_url(text)
    return text


@_accepting("URL")
def proxy_url(text: str) -> Address:
    """Parses the URL of the proxy, which must use TLS."""
    addresses = parse_service_url(text, "proxyServiceUrl")
    if len(addresses) != 1 or not addresses[0].tls:
        raise ValueError("one host with TLS, pulsar+ssl://host:port")
    return addresses[0]


@_accepting("names")
def tls_protocols(text: str) -> tuple[str, ...]:
    """Parses Java's names of TLS versions, in upper or lower case; repeated versions count once."""
    by_name = {name.lower(): name for name in PROTOCOLS}
    given = [name.lower() for name in names(text)]
    if not by_name.keys() >= set(given):
        raise ValueError(f"one or both of {', '.join(PROTOCOLS)}, separated by commas")
    return tuple(dict.fromkeys(by_name[name] for name in given))


@_accepting("names")
def tls_ciphers(text: str) -> tuple[str, ...]:
    """Parses Java's names of cipher suites, in upper or lower case; repeated suites count once."""
    given = tuple(dict.fromkeys(name.upper() for name in names(text)))
    unknown = [name for name in given if not has_suite(name)]
    if unknown:
        raise ValueError(
            "Java's names of TLS 1.2 or 1.3 cipher suites, separated by commas, such as "
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256; Python's OpenSSL does not have "
            f"{', '.join(unknown)[:500]}"
        )
    return given


@_accepting("topic")
def topic(text: str) -> TopicName:
    """Parses one topic name; refuses commas, though valid in names, because the user may mean two topics."""
    _check_no_pattern(text)
    if "," in text:
        raise ValueError(
            "one topic, without a comma. To read several, set topics; to write to several, name the topic of "
            "each row in a column __topic"
        )
    return TopicName.parse(text, scalable=True)


def _check_no_pattern(text: str) -> None:
    """Raises ValueError for ``*``, although valid in a name, because the user may mean a pattern."""
    if "*" in text:
        raise ValueError("without *. To read all topics that match, set topicsPattern, such as ord.*")


@_accepting("topics")
def topics(text: str) -> tuple[TopicName, ...]:
    """Parses topic names separated by commas; repeated topics count once."""
    _check_no_pattern(text)
    if text.startswith("["):
        raise ValueError("names separated by commas, without brackets and quotes")
    if "," not in text and len(text.split()) > 1:
        raise ValueError("names separated by commas. A single topic with a space in its name is for topic")
    return tuple(dict.fromkeys(TopicName.parse(part, scalable=True) for part in text.split(",")))


@_accepting("column names")
def metadata_columns(text: str) -> tuple[str, ...]:
    """Parses column names separated by commas, in order; ``*``: all columns; an empty text: no column."""
    if text == "*":
        return tuple(METADATA_COLUMNS)
    by_name = {name.lower(): name for name in METADATA_COLUMNS}
    given = [part.strip() for part in text.split(",")] if text else []
    for name in given:
        if name.lower() not in by_name:
            near = by_name.get(f"__{name.lower()}")
            right = f"names from {', '.join(METADATA_COLUMNS)}, separated by commas"
            raise ValueError(
                f"{near}, in place of {name}" if near else f"{right}; the value is always the first column"
            )
    return tuple(dict.fromkeys(by_name[name.lower()] for name in given))


@_accepting("number")
def sequence_id(text: str) -> int:
    """Parses a sequence id: a number from -1, where -1 means before the first id."""
    if not re.fullmatch(r"-1|\d{1,18}", text):
        raise ValueError("a whole number from -1 to 999999999999999999")
    return int(text)


def _is_text(value: object) -> bool:
    """Whether a value is a text in valid UTF-8; JSON's texts may have lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@_accepting("JSON")
def properties(text: str) -> tuple[tuple[str, str], ...]:
    """Parses a JSON object whose values are texts."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or not all(map(_is_text, [*given, *given.values()])):
        raise ValueError('a JSON object of texts, such as {"team": "sales"}')
    return tuple(given.items())
