"""The broker with TLS and logins that its tests share: the fixture `secured`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.secured import Secured, open_secured


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with open_secured(tmp_path_factory.mktemp("secured")) as opened:
        yield opened
