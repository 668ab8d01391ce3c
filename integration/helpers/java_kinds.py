"""The Java client with classes that have a field of each kind, one process for all questions.

java/KindsPeer.java says what it is asked, and what it answers.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from integration.helpers.java_peer import java_command

_SOURCE = Path(__file__).parents[1] / "java" / "KindsPeer.java"


class JavaKinds:
    """A process that is asked one thing after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def write(self, kind: str, topic: str) -> None:
        """Register two versions of a schema, and write five values: two of the older one, and three."""
        self._ask(f"write {kind} {topic}")

    def register(self, kind: str, topic: str) -> None:
        """Register the two versions of the schema."""
        self._ask(f"register {kind} {topic}")

    def read(self, kind: str, topic: str) -> list[dict[str, Any]]:
        """What Java's consumer gets."""
        found: list[dict[str, Any]] = json.loads(self._ask(f"read {kind} {topic}"))
        return found

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the Java program has ended; its log says why"
        return answer


@contextmanager
def java_kinds(service_url: str, log: Path) -> Iterator[JavaKinds]:
    """Run the program with the broker's jars; ``log`` is the file of its log."""
    command = java_command(_SOURCE, [service_url])
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8"
        )
        with process:
            yield JavaKinds(process)
            assert process.stdin is not None
            process.stdin.close()
