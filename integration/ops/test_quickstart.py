"""The README, the quickstart and deploying, word for word, as read with a checkout, Python and Java."""

import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from contextlib import contextmanager

import pytest

from integration.broker.waiting import HANG, wait_until
from integration.docs import ROOT, blocks

ACTIVATE = ". venv/bin/activate\n"
BROKER = "pulsar_spark broker"
OFFLINE = "--no-index"

# What a fresh clone does not have.
_OURS = shutil.ignore_patterns(".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".*_cache")


@contextmanager
def in_second_shell(command, folder, variables):
    """Run a foreground command; yield the file of its output when it is ready. Ctrl-C ends it."""
    *before, last = command.splitlines()
    said = folder / "second-shell.txt"
    with (
        said.open("wb") as output,
        subprocess.Popen(
            ["sh", "-e", "-c", "\n".join([*before, f"exec {last}"])],
            cwd=folder,
            env=variables,
            stdout=output,
            stderr=output,
        ) as shell,
    ):
        try:
            wait_until(lambda: shell.poll() is not None or "pulsar://" in said.read_text(), timeout=600)
            assert shell.poll() is None, said.read_text()
            yield said
        finally:
            shell.send_signal(signal.SIGINT)
            assert shell.wait(HANG) == 0, said.read_text()


def run(text, folder, variables):
    """Let a shell run a text; it stops at the first command that fails."""
    command = ["sh", "-e", "-c", text]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.long
@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_first_programs_word_for_word(tmp_path, page):
    """They take ports 6650 and 8080, as a reader's do."""
    # As `env -i PATH="$PATH" HOME="$HOME"`: nothing of what our own commands and fixtures set.
    variables = {name: os.environ[name] for name in ("PATH", "HOME")}
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=_OURS)
    commands = "\n".join(block.text for block in blocks(ROOT / page, "sh"))
    install, started, after = commands.partition(BROKER)
    assert started, page
    # The quickstart says it in words: in `python3`, in the same environment.
    run_program = after if page == "README.md" else f"{ACTIVATE}python3 first.py"
    program, shown = [], []
    for block in blocks(ROOT / page, "python", "text"):
        (program if block.language == "python" else shown).append(block.text)
    (checkout / "first.py").write_text("\n".join(program))
    run(install, checkout, variables)
    with in_second_shell(ACTIVATE + BROKER, checkout, variables) as said:
        done = run(run_program, checkout, variables)
        out = said.read_text() + done.stdout
    for text in shown:
        _, found, out = out.partition(text)
        assert found, f"this is not printed in its place:\n{text}\n{done.stdout}{done.stderr}"
    # Without the time that a line begins with, and without what Spark says of each `register`.
    lines = [re.sub(r"^[\d/]+ [\d:]+ ", "", line) for line in done.stderr.splitlines()]
    counts = Counter(line for line in lines if "pulsar" in line.lower() and "DataSourceManager" not in line)
    assert [line for line, times in counts.items() if times > 1] == []


# A user's script: `deploying.md` has its first lines.
_APP = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
{first_lines}
options = {{"service.url": "{url}", "topic": "{topic}"}}
orders = spark.createDataFrame([("ann", "tea")], "__key string, value string")
orders.write.format("pulsar").options(**options).mode("append").save()
stream = spark.readStream.format("pulsar").options(**options, startingOffsets="earliest").load()
query = stream.drop("__topic").writeStream.format("pulsar").options(**options | {{"topic": "{topic}-copy"}})
query.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.long
def test_the_commands_of_deploying_word_for_word(tmp_path, cluster, peer, topic):
    """In one shell and one folder, in an environment with pip; Spark is local."""
    page = ROOT / "docs" / "deploying.md"
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=_OURS)
    (first_lines,) = (block.text for block in blocks(page, "python"))
    (checkout / "app.py").write_text(
        _APP.format(first_lines=first_lines, url=cluster.service_url, topic=topic)
    )
    commands = "\n".join(block.text for block in blocks(page, "sh") if OFFLINE not in block.text)
    (home,) = re.findall(r"`(export SPARK_HOME=[^`]+)`", page.read_text())
    commands = commands.replace("python -m venv environment", f"{home}\npython -m venv environment")
    commands = commands.replace("/shared/maven", f"{tmp_path}/maven")
    submits = commands.count("\nspark-submit")
    variables = {name: os.environ[name] for name in ("PATH", "HOME")} | {"SPARK_LOCAL_IP": "127.0.0.1"}
    run(f"python3 -m venv venv\n{ACTIVATE}{commands}", checkout, variables)
    assert submits == 3
    assert [record.value for record in peer.read_all(f"{topic}-copy")] == [b"tea"] * submits


@pytest.mark.long
def test_an_install_without_an_index(tmp_path, cluster, peer, topic):
    """The wheels are collected in one environment, and installed in another, which has no network to ask."""
    page = ROOT / "docs" / "deploying.md"
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=_OURS)
    (commands,) = (block.text for block in blocks(page, "sh") if OFFLINE in block.text)
    collect, install = commands.splitlines()
    variables = {name: os.environ[name] for name in ("PATH", "HOME")} | {"SPARK_LOCAL_IP": "127.0.0.1"}
    run(f"python3 -m venv venv\n{ACTIVATE}{collect}", checkout, variables)
    # Away from the checkout, which would be found first.
    other = tmp_path / "other"
    shutil.copytree(checkout / "wheels", other / "wheels")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    run(f"python3 -m venv venv\n{ACTIVATE}{install}", other, variables | nowhere)
    (other / "app.py").write_text(_APP.format(first_lines="", url=cluster.service_url, topic=topic))
    run(f"{ACTIVATE}python3 app.py", other, variables)
    assert [record.value for record in peer.read_all(f"{topic}-copy")] == [b"tea"]
