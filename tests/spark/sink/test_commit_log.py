"""Where a query keeps the log of its commits."""

import pytest

from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink.commit_log import log_topic


@pytest.mark.parametrize(
    ("topic", "namespace"),
    [("orders", "public/default"), ("a/b/orders", "a/b"), ("a/b/orders-partition-1", "a/b")],
)
def test_the_log_is_beside_the_topic(topic, namespace):
    log = log_topic(TopicName.parse(topic), "id")
    assert str(log) == f"persistent://{namespace}/spark-transactions-id"


def test_without_a_topic_it_is_where_topics_are_by_default():
    assert str(log_topic(None, "id")) == "persistent://public/default/spark-transactions-id"
