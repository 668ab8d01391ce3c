"""Topics that deduplicate: the fixtures `once_topic` and `plain_once_topic`."""

from __future__ import annotations

import uuid

import pytest

from integration.broker import Admin

ONCE_PARTITIONS = 3


@pytest.fixture(scope="session")
def deduplicating_namespace(admin: Admin) -> str:
    """A namespace of the shared cluster that deduplicates, and whose data stay."""
    name = f"public/once-{uuid.uuid4().hex[:8]}"
    admin.create_namespace(name)
    admin.set_retention(name, minutes=-1, megabytes=-1)
    admin.set_deduplication(name, True)
    return name


@pytest.fixture
def plain_once_topic(topic: str, deduplicating_namespace: str) -> str:
    """The name of a topic in that namespace that does not exist yet; used first, it has no partitions."""
    return topic.replace("public/default", deduplicating_namespace)


@pytest.fixture
def once_topic(admin: Admin, plain_once_topic: str) -> str:
    """A topic of several partitions in that namespace."""
    admin.create_partitioned_topic(plain_once_topic, ONCE_PARTITIONS)
    return plain_once_topic
