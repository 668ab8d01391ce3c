"""Spark's source and sink at a broker with TLS and logins."""

import pytest

from integration.broker.waiting import FAR_AWAY
from integration.chaos.login import outlive
from integration.chaos.messages import numbered
from integration.fixtures.spark import Collector, PulsarInSpark, begun, drain
from integration.helpers.secured import CLERK
from integration.spark.test_errors import error_of


@pytest.fixture
def here(spark, secured):
    return PulsarInSpark(spark, secured.tls_url)


def test_a_batch_and_a_stream_through_tls_with_a_token(here, secured, secured_peer, topic, checkpoint):
    secured.broker.admin.create_partitioned_topic(topic, 2)
    options = secured.options(tlsHostnameVerificationEnable="true")
    sent = numbered(1000, keys=10)
    secured_peer.produce(topic, sent, batch_size=100)
    rows = here.stream(topic, **options, **{"admin.url": secured.broker.tls_admin_url}).drop("__topic")
    copy = here.write_stream(rows, checkpoint, f"{topic}-copy", **options)
    query = begun(copy.trigger(availableNow=True))
    query.awaitTermination()
    found = secured_peer.read_all(f"{topic}-copy")
    assert sorted((each.value, each.key) for each in found) == sorted((each.value, each.key) for each in sent)
    again = here.read(f"{topic}-copy", **options)
    assert again.count() == len(sent)
    here.write(again.select("value", "__key"), topic, **options)
    assert len(secured_peer.read_all(topic)) == 2 * len(sent)


def test_a_role_that_may_read_one_topic(here, secured, secured_peer, topic, checkpoint):
    """It may not ask which topics there are, and needs not; what it may not do is told with the topic."""
    secured.broker.admin.create_topic(topic)
    secured.grant(topic, CLERK, "consume")
    options = secured.options(params=secured.tokens.token(CLERK))
    sent = numbered(50)
    secured_peer.produce(topic, sent)
    collector = Collector()
    drain(here.stream(topic, **options), collector, checkpoint)
    assert collector.values == [each.value.decode() for each in sent if each.value is not None]
    rows = here.rows([("v",)], "value string")
    patient = {"pulsar.client.operationTimeoutMs": f"{FAR_AWAY:g}s"}
    text = error_of(lambda: here.write(rows, topic, **options, **patient))
    assert "[PULSAR_AUTH] the broker refused the request: Client is not authorized to Produce" in text
    assert f"topic {topic}" in text


def test_a_stream_outlives_its_token(here, secured, topic, tmp_path):
    """The same for 5 minutes: `python -m integration.chaos login`."""
    assert outlive(here, secured, topic, tmp_path, lifetime=12.0, times=1) > 0


def test_a_role_that_may_not_use_transactions(here, secured, topic):
    """Spark's error shows why the task has failed, although the abort fails for the same reason."""
    secured.broker.admin.create_topic(topic)
    secured.grant(topic, CLERK, "produce")
    options = secured.options(params=secured.tokens.token(CLERK))
    rows = here.rows([("v",)], "value string")
    text = error_of(lambda: here.write(rows, topic, delivery="transactional", **options))
    assert "[PULSAR_AUTH]" in text
    assert "transaction_coordinator_assign" in text
