"""One face: what users import is at the root of the package, with pyspark and without."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pulsar_spark
from integration.docs import PAGES, ROOT, blocks
from pulsar_spark import errors, testing
from pulsar_spark.spark.sink.report import TopicPartitionMetrics

NEEDS_PYSPARK = {"PulsarLineageListener", "PulsarProgressListener", "TopicPartitionMetrics", "register"}
PYTHON = {block.place: block.text for page in PAGES for block in blocks(page, "python")}
EXAMPLES = {file.name: file.read_text() for file in sorted((ROOT / "examples").glob("*.py"))}
PROGRAMS = {**PYTHON, **EXAMPLES}

# Names with dots in the text of pages that are no imports: the logger of the listener, and a command.
NOT_IMPORTED = {"pulsar_spark.progress", "pulsar_spark.spark", "pulsar_spark.__file__"}


def foreign_names(program, public):
    """The names of this package that a program uses and that are not public names of its root."""
    # A block may begin in the middle of a chain of calls.
    text = f"(reader\n{program}\n)" if program.startswith(".") else program
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pulsar_spark":
            for alias in node.names:
                known = {"pulsar_spark": public, "pulsar_spark.testing": testing.__all__}.get(node.module, ())
                if alias.name not in known:
                    yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("pulsar_spark."))
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pulsar_spark":
            yield from {f"pulsar_spark.{node.attr}"} - {f"pulsar_spark.{name}" for name in public}


def test_programs_of_the_docs_use_public_names_only():
    for place, program in PROGRAMS.items():
        assert list(foreign_names(program, pulsar_spark.__all__)) == [], place


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("from pulsar_spark.errors import CryptoError", ["pulsar_spark.errors.CryptoError"]),
        ("from pulsar_spark import CryptoError, Secret", ["pulsar_spark.Secret"]),
        ("import pulsar_spark.client", ["pulsar_spark.client"]),
        ("from pulsar_spark.testing import pulsar, Admin", ["pulsar_spark.testing.Admin"]),
        ("import pulsar_spark\npulsar_spark.secret(1)", ["pulsar_spark.secret"]),
        ("import pulsar_spark\nfrom pulsar_spark import CryptoError", []),
        ('.option("a", 1)', []),
    ],
)
def test_a_name_that_is_not_public_is_found(program, found):
    assert list(foreign_names(program, {"CryptoError"})) == found


def test_texts_of_the_docs_name_public_names_only():
    for page in PAGES:
        named = set(re.findall(r"\bpulsar_spark\.\w+(?:\.\w+)*", page.read_text()))
        public = {f"pulsar_spark.{name}" for name in pulsar_spark.__all__}
        public |= {"pulsar_spark.testing", *(f"pulsar_spark.testing.{name}" for name in testing.__all__)}
        assert named - NOT_IMPORTED - public == set(), page.name


def test_all_public_names_are_there_once():
    assert len(pulsar_spark.__all__) == len(set(pulsar_spark.__all__))
    assert [name for name in pulsar_spark.__all__ if not hasattr(pulsar_spark, name)] == []


def test_all_errors_are_public():
    kinds = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.PulsarError)
    }
    assert kinds - set(pulsar_spark.__all__) == set()


def test_what_users_functions_get_is_public():
    assert pulsar_spark.TopicPartitionMetrics is TopicPartitionMetrics
    for name in ("MessageColumns", "MessageId", "EncryptionKeyInfo", "TopicPartitionMetrics"):
        assert name in pulsar_spark.__all__


def names_had_with(pyspark):
    """What the root says of names that it cannot give, where ``sys.modules["pyspark"]`` is something else."""
    code = f"""
import sys, types
sys.modules['pyspark'] = {pyspark}
import pulsar_spark
for name in pulsar_spark.__all__:
    try:
        getattr(pulsar_spark, name)
    except ImportError as error:
        print(name, error, sep=": ")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(pulsar_spark.__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def test_without_pyspark_the_rest_is_there():
    missing = names_had_with("None")
    assert missing.keys() == NEEDS_PYSPARK
    assert all("pyspark" in error for error in missing.values())


def test_a_pyspark_that_is_too_old_is_an_error():
    missing = names_had_with("types.ModuleType('pyspark')")
    assert missing.keys() == NEEDS_PYSPARK
    for error in missing.values():
        assert "[PULSAR_LIBRARY] this pyspark is too old: pulsar_spark needs 4.0 or newer" in error


def test_a_pyspark_that_cannot_be_imported_is_not_called_too_old(tmp_path):
    (tmp_path / "pyspark/sql").mkdir(parents=True)
    (tmp_path / "pyspark/__init__.py").touch()
    (tmp_path / "pyspark/sql/__init__.py").write_text("import a_library_of_pyspark")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from pulsar_spark import register"
    root = Path(pulsar_spark.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'a_library_of_pyspark'"
