"""A real Pulsar broker for tests, benchmarks and examples; `python3 -m integration broker` runs one."""

from integration.broker.admin import Admin, AdminError
from integration.broker.errors import BrokerError
from integration.broker.ports import free_port
from integration.broker.process import Jvm
from integration.broker.standalone import StandaloneBroker

__all__ = ["Admin", "AdminError", "BrokerError", "Jvm", "StandaloneBroker", "free_port"]
