"""PlanningClient: which client it stands on. What it does there is tested with what it calls."""

from pulsar_spark.client import Client, ClientOptions, PlanningClient, now, shared_client
from pulsar_spark.client.client import FIRST_CONTACT
from pulsar_spark.client.reading import probe

OPTIONS = ClientOptions(service_url="pulsar://localhost:1", operation_timeout=600.0)


def test_it_shares_the_client_of_its_process():
    assert PlanningClient.shared(OPTIONS)._client is shared_client(OPTIONS)
    assert 500.0 < PlanningClient.shared(OPTIONS).operation().left <= 600.0


def test_for_the_first_contact_it_has_another_client():
    with Client(OPTIONS) as client, PlanningClient(client).impatient() as impatient:
        assert impatient.operation().seconds == FIRST_CONTACT
        assert impatient._client is not client


def test_its_clock_never_goes_back():
    with Client(OPTIONS) as client:
        assert now() <= PlanningClient(client).now() <= now()


def test_a_compacted_topic_that_looks_empty_gets_some_turns(monkeypatch):
    monkeypatch.setattr(probe, "OPENS_COMPACTED_WITHIN", 0.35)
    with Client(OPTIONS) as client:
        began = now()
        turns = len(list(PlanningClient(client, read_compacted=True).opening_turns()))
        assert turns == 3 or (turns < 3 and now() - began > 0.35)
        assert now() - began >= 0.35
        assert not list(PlanningClient(client).opening_turns())
