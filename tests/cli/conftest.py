"""A fake broker's admin interface."""

import pytest

from tests.fake_admin import FakeAdmin


@pytest.fixture
def admin():
    with FakeAdmin() as admin:
        yield admin
