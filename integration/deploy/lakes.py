"""The recipes of docs/recipes.md for Delta and Iceberg, as a user runs them, with drivers that are killed.

What is installed, the command and the code are those of the page. Each message must be once in each table,
and once in a topic that is written from a table.
"""

from __future__ import annotations

import json
import random
import re
import shlex
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from integration.broker.waiting import HANG, wait_until
from integration.deploy.environments import Environment, installed
from integration.deploy.submit import Submission
from integration.docs import ROOT, Block, blocks
from integration.helpers.peer import Peer, Record

_PAGE = ROOT / "docs" / "recipes.md"
_KILLS = 3
_ROWS = 200  # produced at a time


@dataclass(frozen=True, slots=True)
class Recipe:
    """A section of the page.

    Attributes:
        reader: the file, beside this one, of a script that prints the tables.
        copy: the topic that it writes from a table, if it does.
    """

    heading: str
    reader: str
    copy: str | None = None

    def commands(self) -> tuple[list[str], list[str]]:
        """What pip installs, and what spark-submit is given before its script."""
        (shell,) = self._blocks("sh")
        pip, submit = map(shlex.split, shell.text.replace("\\\n", " ").splitlines())
        assert (pip[:2], submit[0]) == (["pip", "install"], "spark-submit"), shell.place
        return pip[2:], submit[1:-1]

    def script(self, *, to_end: bool) -> str:
        """The page's first block and those of the section; streams run for ever or to the topic's end."""
        code = "\n".join(block.text for block in (blocks(_PAGE, "python")[0], *self._blocks("python")))
        end = "spark.streams.awaitAnyTermination()"
        if to_end:
            once = r".trigger(availableNow=True).start(\1).awaitTermination()"
            code, end = re.sub(r"\.start\((.*?)\)", once, code), "spark.stop()"
        session = "from pyspark.sql import SparkSession\n\nspark = SparkSession.builder.getOrCreate()"
        return f"{session}\n{code}\n{end}\n"

    def _blocks(self, language: str) -> list[Block]:
        lines = _PAGE.read_text().splitlines()
        begin = lines.index(f"## {self.heading}")
        end = next(number for number in range(begin + 1, len(lines)) if lines[number].startswith("## "))
        return [block for block in blocks(_PAGE, language) if begin < block.line <= end]


DELTA = Recipe("Delta Lake", "read_delta.py", "orders-from-delta")
ICEBERG = Recipe("Iceberg", "read_iceberg.py")


def run_and_kill(recipe: Recipe, home: Path, wheel: str, service_url: str) -> None:
    """Run a recipe in a fresh environment; the broker must deduplicate.

    Raises:
        AssertionError: a message is missing or is there twice, or a driver failed.
        subprocess.CalledProcessError: pip failed.
    """
    environment = installed(home / "environment", sys.executable, wheel, *recipe.commands()[0])
    chance = random.Random(seed := random.randrange(10**6))
    print(f"{recipe.heading}: seed {seed}", flush=True)
    with Peer(service_url) as peer:
        user = _User(recipe, home, environment, service_url, peer)
        user.produce()
        user.run_to_end()
        for _ in range(_KILLS):
            with user.submit(recipe.script(to_end=False)) as driver:
                for _ in range(2):
                    user.produce_and_await(driver)
                user.produce()
                time.sleep(chance.uniform(0.0, 3.0))
        user.run_to_end()
        user.check()
        user.repeat_micro_batches()
        user.check()


class _User:
    """Who has the recipe's script, and a topic."""

    def __init__(
        self, recipe: Recipe, home: Path, environment: Environment, service_url: str, peer: Peer
    ) -> None:
        (home / "lake").mkdir()
        self._recipe, self._home, self._environment, self._peer = recipe, home, environment, peer
        # What the page names, and what is in its place.
        self._places = {"pulsar://localhost:6650": service_url, "/lake/": f"{home}/lake/"}
        self._produced: Counter[tuple[str | None, str]] = Counter()

    def produce(self) -> None:
        """Produce some rows more."""
        first = self._produced.total()
        rows = [(f"customer-{number % 7}", f'{{"id": {number}}}') for number in range(first, first + _ROWS)]
        records = [Record(value.encode(), key=key) for key, value in rows]
        self._peer.produce("orders", records, batch_size=50)
        self._produced.update(rows)

    def submit(self, script: str) -> Submission:
        """Start a script; it is killed where the ``with`` block ends first."""
        file = self._home / "app.py"
        file.write_text(self._at_home(script))
        arguments = [self._at_home(word) for word in self._recipe.commands()[1]]
        # Nobody's Maven repository: it may have POMs without their jars, at which Ivy gives up.
        variables = {"SPARK_SUBMIT_OPTS": f"-Duser.home={self._home}"}
        return Submission(self._environment, self._home, "local[2]", file, *arguments, variables=variables)

    def run_to_end(self) -> None:
        """Run the script to the end of what is there."""
        with self.submit(self._recipe.script(to_end=True)) as driver:
            driver.finish()

    def produce_and_await(self, driver: Submission) -> None:
        """Produce some rows more, and wait until each query has written one more micro-batch."""
        before = self._last_commits()
        self.produce()
        wait_until(lambda: driver.is_running() and self._have_passed(before), timeout=3 * HANG)

    def repeat_micro_batches(self) -> None:
        """Repeat the last of each query, as if a driver had died when it was written and not yet noted."""
        last = self._last_commits()
        for folder, number in last.items():
            (folder / f"{number}").unlink()
            (folder / f".{number}.crc").unlink()
        self.run_to_end()
        assert all((folder / f"{number}").exists() for folder, number in last.items())

    def check(self) -> None:
        """Compare what was produced with the tables, and with the topic that is written from a table."""
        with self.submit(Path(__file__).with_name(self._recipe.reader).read_text()) as driver:
            found = json.loads(driver.finish().splitlines()[-1])
        places = {table: [(key, value) for key, value in rows] for table, rows in found.items()}
        if self._recipe.copy:
            records = self._peer.read_all(self._recipe.copy)
            places[self._recipe.copy] = [(record.key, (record.value or b"").decode()) for record in records]
        for place, rows in places.items():
            missing, repeated = self._produced - Counter(rows), Counter(rows) - self._produced
            assert not missing, f"{place}: {missing.total()} of {self._produced.total()} rows are missing"
            assert not repeated, f"{place}: {repeated.total()} rows too many"
        print(f"{self._recipe.heading}: {self._produced.total()} rows, each once in", *places, flush=True)

    def _last_commits(self) -> dict[Path, int]:
        """The number of the last finished micro-batch of each query."""
        folders = (self._home / "lake" / "checkpoints").glob("*/commits")
        return {folder: max(int(file.name) for file in folder.glob("[0-9]*")) for folder in folders}

    def _have_passed(self, before: dict[Path, int]) -> bool:
        return all(number > before[folder] for folder, number in self._last_commits().items())

    def _at_home(self, text: str) -> str:
        for place, own in self._places.items():
            text = text.replace(place, own)
        return text
