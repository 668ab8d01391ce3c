"""Makes the routers of writers from the users' options."""

from __future__ import annotations

import random
from typing import TypeVar

from pulsar_spark.client.writing.producer_options import ProducerOptions, UserCode
from pulsar_spark.protocol.writing.routing import Router, TaskPlace

# Number of rows without a key that are sent to one partition before the next one. Used if batches have no
# limit of messages, or if a replay must choose the same partitions.
_BLOCK = 1000

R = TypeVar("R", bound=Router)


def new_router(
    kind: type[R],
    options: ProducerOptions,
    code: UserCode,
    partitions: int,
    place: TaskPlace | None,
    *,
    has_equal_blocks: bool = False,
) -> R:
    """Makes the router of one writer. It sends blocks of rows without a key to one partition after another.

    ``has_equal_blocks``: whether all blocks have _BLOCK rows, for any size of batches. Brokers admit one of
    two running copies of a task only in partitions that both write, so both must choose the same partitions.
    """
    by_time = options.batching and place is None
    mode = options.routing_mode
    block = (options.batching_max_messages or _BLOCK) if options.batching else 1
    return kind(
        mode,
        options.hashing_scheme,
        code.router,
        start=random.randrange(partitions) if place is None else place.first_partition(partitions, mode),
        block=_BLOCK if has_equal_blocks else block,
        switch_after=options.batching_max_publish_delay * options.switch_frequency if by_time else None,
    )
