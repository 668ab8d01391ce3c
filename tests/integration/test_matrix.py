"""The matrix of versions: a corner without its Python is a failure."""

from integration.matrix import Versions, with_spark, without_spark

# No machine has it with what this project needs.
NO_PYTHON = Versions("3.0")


def test_a_python_that_is_missing_is_a_failure(tmp_path, capsys):
    assert without_spark(NO_PYTHON, tmp_path) != 0
    assert with_spark(NO_PYTHON, tmp_path, tmp_path, None, ["tests"]) != 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all("no python3.0" in line and "integration test tests" in line for line in lines)
