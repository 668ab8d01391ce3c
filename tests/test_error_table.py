"""The table of error codes: complete, in the order of the tree."""

from pulsar_spark import error_table
from tests.test_errors import CLASSES


def test_each_code_is_explained_in_the_order_of_the_tree():
    table = error_table.explanations()
    assert [(each.code, each.is_retriable) for each in table] == [
        (kind.code, kind.retriable) for kind in CLASSES
    ]
    for each in table:
        assert each.meaning.endswith("."), each
        assert each.advice.endswith("."), each
        assert "``" not in each.meaning, each
