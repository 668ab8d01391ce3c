"""A user's script with nothing of ours installed: ``spark-submit --packages`` on a cluster of two executors.

``python3 -m integration deploy`` tries all ways of docs/deploying.md.
"""

from collections import Counter

import pytest

from integration.deploy.environments import linked
from integration.deploy.ways import by_packages
from integration.helpers.peer import Record


@pytest.mark.long
def test_packages_on_a_local_cluster(cluster, peer, topic, tmp_path):
    records = [Record(b"%d" % number, key=f"key-{number % 7}") for number in range(1000)]
    peer.produce(topic, records, batch_size=100)
    environment = linked(tmp_path / "environment")
    said = by_packages(environment, tmp_path, "local-cluster[2,1,512]", cluster.service_url, topic)
    for side in ("driver", "executor"):
        assert said[side]["python"] == str(environment.python)
        assert "/pulsar-spark_pulsar-spark-" in said[side]["pulsar_spark"]
        assert "/pulsar_spark/carried/" in said[side]["google.protobuf"]
        assert "crc32c" not in said[side]
    for copy in ("batch", "stream"):
        assert Counter(peer.read_all(f"{topic}-{copy}")) == Counter(records)
