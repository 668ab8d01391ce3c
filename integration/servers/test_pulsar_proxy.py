"""Pulsar's own proxy between our client and the broker: rows are exact, also where it is killed meanwhile."""

import pytest

from integration.broker.waiting import wait_until
from integration.chaos.messages import by_key, numbered
from integration.fixtures.spark import PulsarInSpark, begun
from integration.helpers.pulsar_proxy import PulsarProxy

_PARTITIONS = 3


# It fetches 130 MB of jars, once.
@pytest.mark.long
def test_a_stream_from_topic_to_topic(spark, cluster, admin, peer, topic, once_topic, tmp_path):
    """Lookups, reading and writing; the proxy is killed with -9 amid them, and comes back."""
    admin.create_partitioned_topic(topic, _PARTITIONS)
    records = numbered(8_000, keys=50)
    with PulsarProxy(cluster.service_url, cluster.admin_url, tmp_path) as proxy:
        through = PulsarInSpark(spark, proxy.service_url)
        peer.produce(topic, records[:4_000], batch_size=100)
        rows = through.stream(topic, maxMessagesPerTrigger="500")
        kept = rows.select("value", "__key")
        query = begun(through.write_stream(kept, tmp_path / "checkpoint", once_topic))
        try:
            wait_until(lambda: written(admin, once_topic) > 1000)
            proxy.kill()
            peer.produce(topic, records[4_000:], batch_size=100)
            proxy.start()
            query.processAllAvailable()
        finally:
            query.stop()
    # A broker's own address would work here, too.
    assert b"hasProxyToBrokerUrl: true" in (tmp_path / "proxy.log").read_bytes()
    copied = [
        record
        for number in range(_PARTITIONS)
        for record in peer.read_all(f"{once_topic}-partition-{number}")
    ]
    assert len(copied) == len(records)
    assert by_key(copied) == by_key(records)


def written(admin, topic):
    """Messages that were written to a partitioned topic."""
    return int(admin.partitioned_stats(topic)["msgInCounter"])
