"""A namespace that takes only subscriptions whose names begin with the role of who subscribes."""

import logging
import uuid
from collections import Counter

import pytest

from integration.broker.admin import AdminError
from integration.broker.waiting import wait_until
from integration.chaos.messages import numbered
from integration.fixtures.spark import PulsarInSpark, begun, finish
from integration.helpers.secured import CLERK, open_secured
from integration.helpers.task_runs import run, task_of
from integration.helpers.transactions import SETTINGS
from integration.spark.test_errors import error_of
from pulsar_spark.client import Client, ClientOptions, Credentials, TlsOptions

_COORDINATORS = "persistent://pulsar/system/transaction_coordinator_assign"


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    with open_secured(tmp_path_factory.mktemp("prefix"), SETTINGS) as opened:
        wait_until(lambda: has_granted(opened))
        yield opened


def has_granted(secured):
    """Let the clerk find the coordinators of transactions; False: the broker has not made their topic yet."""
    try:
        secured.grant(_COORDINATORS, CLERK, "consume")
    except AdminError as error:
        if error.status != 404:
            raise
        return False
    return True


@pytest.fixture
def namespace(secured):
    """A namespace of the test's own, in which the clerk may read and write."""
    admin, name = secured.broker.admin, f"public/{uuid.uuid4().hex[:8]}"
    admin.create_namespace(name)
    admin.set_deduplication(name, True)
    admin.request("POST", f"namespaces/{name}/subscriptionAuthMode", "Prefix")
    admin.request("POST", f"namespaces/{name}/permissions/{CLERK}", ["produce", "consume"])
    return name


@pytest.mark.long
def test_source_and_sink_use_the_prefix_for_all_their_subscriptions(
    spark, secured, namespace, secured_peer, checkpoint, tmp_path
):
    """Planner, probes, watches, tasks, and the log of the commits with its reader."""
    here = PulsarInSpark(spark, secured.tls_url)
    topic = f"persistent://{namespace}/orders"
    secured.broker.admin.create_partitioned_topic(topic, 2)
    (tmp_path / "key").write_text("a secret of the query")
    clerk = secured.options(params=f"token:{secured.tokens.token(CLERK)}")
    named = {**clerk, "subscriptionPrefix": f"{CLERK}-orders"}
    sent = numbered(400, keys=10)
    secured_peer.produce(topic, sent)
    rows = here.stream(topic, **named, maxMessagesPerTrigger="150", minPartitions="4").drop("__topic")
    transactional = {"delivery": "transactional", "transactionLogKey": f"file://{tmp_path}/key"}
    copy = here.write_stream(rows, checkpoint, f"{topic}-copy", **named, **transactional)
    finish(begun(copy.trigger(availableNow=True)))
    found = secured_peer.read_all(f"{topic}-copy")
    assert Counter((each.value, each.key) for each in found) == Counter(
        (each.value, each.key) for each in sent
    )
    assert here.read(topic, **named, startingTime="2020-01-01T00:00:00Z").count() == len(sent)
    assert "[PULSAR_AUTH]" in error_of(lambda: here.read(topic, **clerk).count())


def test_what_is_stored_is_compared_through_a_reader_with_the_prefix(
    secured, namespace, secured_peer, caplog
):
    options = ClientOptions(
        service_url=secured.tls_url,
        tls=TlsOptions(trust_certs=secured.authority.file),
        credentials=Credentials("token", secured.tokens.token(CLERK)),
        subscription_prefix=CLERK,
    )
    topic = f"persistent://{namespace}/once"
    with Client(options) as client, caplog.at_level(logging.WARNING):
        for _ in range(2):
            run(client, topic, numbered(10), task_of(client, 7, required=True))
    assert [each.value for each in secured_peer.read_all(topic)] == [each.value for each in numbered(10)]
    assert caplog.messages == []
