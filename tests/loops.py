"""Many small cases as one test: pytest takes longer for a test of its own than most of them."""

import functools
import inspect

import pytest


def for_each(names, cases):
    """Like ``pytest.mark.parametrize``, but one test runs all cases; its failure says which one it is."""
    cases, wanted = tuple(cases), (names,) if isinstance(names, str) else names

    def looped(test):
        @functools.wraps(test)
        def run(**others):
            for case in cases:
                given = dict(zip(wanted, (case,) if isinstance(names, str) else case, strict=True))
                try:
                    test(**given, **others)
                except (Exception, pytest.fail.Exception) as error:
                    raise AssertionError(f"with {given!r:.500}") from error

        left = [one for name, one in inspect.signature(test).parameters.items() if name not in wanted]
        run.__signature__ = inspect.Signature(left)  # type: ignore[attr-defined]
        return run

    return looped


def for_seeds(seeds, few):
    """Like ``for_each``, for seeds of random runs: a test of the first few, and a long one of the others."""
    shares = [range(few), pytest.param(range(few, seeds), marks=pytest.mark.long)]

    def looped(test):
        @functools.wraps(test)
        def run(share, **others):
            for_each("seed", share)(test)(**others)

        left = [one for name, one in inspect.signature(test).parameters.items() if name != "seed"]
        share = inspect.Parameter("share", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        run.__signature__ = inspect.Signature([share, *left])  # type: ignore[attr-defined]
        return pytest.mark.parametrize("share", shares, ids=str)(run)

    return looped


def a_few_of(seeds, few=3):
    """Numbers of random runs: the first few, and all in the long tests."""
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(few, seeds))]
