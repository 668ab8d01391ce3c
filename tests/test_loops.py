import pytest

from tests.loops import for_each


def test_all_cases_run_and_a_failure_says_which_it_is():
    ran = []

    @for_each("a", [1, 2])
    @for_each(("b", "c"), ((b, b + 1) for b in (3, 5)))
    def cases(a, b, c):
        ran.append((a, b, c))
        assert ran != [(1, 3, 4), (1, 5, 6), (2, 3, 4), (2, 5, 6)]

    with pytest.raises(AssertionError, match=r"with {'a': 2}") as caught:
        cases()
    assert "with {'b': 5, 'c': 6}" in str(caught.value.__cause__)
    assert len(ran) == 4
