"""LoginTurns: which challenges of a broker make a client log in again. Pure.

A login may read files and ask an issuer, so one is fetched at a time. Of the challenges that come meanwhile
one is answered, after that: the login as it is then answers all of them.

    =========  ============================  ==============================
    state      challenged                    answered
    =========  ============================  ==============================
    IDLE       ANSWERING: begin to log in    -
    ANSWERING  AGAIN                         IDLE
    AGAIN      AGAIN                         ANSWERING: log in once more
    =========  ============================  ==============================
"""

from __future__ import annotations

from enum import Enum, auto


class LoginState(Enum):
    """How far a client is with the challenges of a broker."""

    IDLE = auto()
    ANSWERING = auto()
    AGAIN = auto()


_CHALLENGED = {
    LoginState.IDLE: LoginState.ANSWERING,
    LoginState.ANSWERING: LoginState.AGAIN,
    LoginState.AGAIN: LoginState.AGAIN,
}
_ANSWERED = {LoginState.ANSWERING: LoginState.IDLE, LoginState.AGAIN: LoginState.ANSWERING}


class LoginTurns:
    """The state of one connection; calls must not overlap."""

    def __init__(self) -> None:
        self.state = LoginState.IDLE

    def challenged(self) -> bool:
        """Note a challenge; returns whether to begin to log in."""
        was_idle = self.state is LoginState.IDLE
        self.state = _CHALLENGED[self.state]
        return was_idle

    def answered(self) -> bool:
        """Note that a login was sent, or could not be; returns whether to log in once more."""
        self.state = _ANSWERED[self.state]
        return self.state is LoginState.ANSWERING
