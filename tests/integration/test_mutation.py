"""The mutation tool changes the package alone."""

import pytest

from integration.mutation import main


@pytest.mark.parametrize("path", ["tests", "pulsar_spark/nowhere", "pulsar_spark/nowhere.py"])
def test_what_is_not_in_the_package(path, capsys):
    assert main([path]) == 2
    assert "is not a file or a folder of pulsar_spark" in capsys.readouterr().err
