"""UserCode: the objects that users give to writers, besides the values of ProducerOptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pulsar_spark.client.encryption import Encryptor
from pulsar_spark.client.writing.interceptors import ProducerInterceptor
from pulsar_spark.protocol.writing.routing import MessageRouter


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCode:
    """The objects that one writer calls.

    Attributes:
        router: chooses partitions with ``RoutingMode.CUSTOM``, else None.
        encryptor: encrypts all payloads; None sends them as they are.
        interceptors: called in the writer's caller's thread, in their order.
    """

    router: MessageRouter | None = None
    encryptor: Encryptor | None = None
    interceptors: Sequence[ProducerInterceptor] = ()


NO_USER_CODE = UserCode()
