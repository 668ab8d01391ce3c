"""The broker with TLS and logins that its tests share, and the C++ client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pulsar
import pytest

from integration.peer import Peer
from integration.secured import ADMIN, Secured, open_secured


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with open_secured(tmp_path_factory.mktemp("secured")) as opened:
        yield opened


@pytest.fixture
def secured_peer(secured: Secured) -> Iterator[Peer]:
    """The C++ client through the same TLS, with a token."""
    login = pulsar.AuthenticationToken(secured.tokens.token(ADMIN))
    trust = secured.authority.file
    with Peer(secured.tls_url, authentication=login, tls_trust_certs_file_path=trust) as opened:
        yield opened
