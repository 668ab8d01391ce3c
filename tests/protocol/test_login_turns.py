"""Each state with each input."""

import pytest

from pulsar_spark.protocol.login_turns import LoginState, LoginTurns

IDLE, ANSWERING, AGAIN = LoginState


def turns_in(state):
    turns = LoginTurns()
    turns.state = state
    return turns


@pytest.mark.parametrize(
    ("state", "begins", "after"),
    [(IDLE, True, ANSWERING), (ANSWERING, False, AGAIN), (AGAIN, False, AGAIN)],
)
def test_a_challenge(state, begins, after):
    turns = turns_in(state)
    assert turns.challenged() is begins
    assert turns.state is after


@pytest.mark.parametrize(("state", "again", "after"), [(ANSWERING, False, IDLE), (AGAIN, True, ANSWERING)])
def test_an_answer(state, again, after):
    turns = turns_in(state)
    assert turns.answered() is again
    assert turns.state is after


def test_however_many_challenges_come_meanwhile_one_more_login_answers_them():
    turns = LoginTurns()
    assert [turns.challenged() for _ in range(5)] == [True, False, False, False, False]
    assert [turns.answered(), turns.answered()] == [True, False]
    assert turns.challenged()
