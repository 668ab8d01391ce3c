"""A real Pulsar broker for tests, benchmarks and examples; `pulsar_spark broker` runs one."""

from integration.broker.admin import Admin, AdminError
from integration.broker.standalone import StandaloneBroker
from pulsar_spark_broker import EmbeddedBrokerError
from pulsar_spark_broker.ports import free_port
from pulsar_spark_broker.process import Jvm

__all__ = ["Admin", "AdminError", "EmbeddedBrokerError", "Jvm", "StandaloneBroker", "free_port"]
