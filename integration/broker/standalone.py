"""The embedded broker, with admin requests for tests."""

from __future__ import annotations

from integration.broker.admin import Admin
from pulsar_spark_broker import standalone


class StandaloneBroker(standalone.StandaloneBroker):
    """The embedded broker of `pulsar_spark_broker`."""

    @property
    def admin(self) -> Admin:
        """Admin requests, with the broker's own client token where settings name one."""
        return Admin(self.admin_url, token=self.admin_token)
