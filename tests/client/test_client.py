"""Client: topics, their brokers, and what becomes of brokers that refuse or say nothing."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pulsar_spark.client import (
    Client,
    ClientOptions,
    Consumer,
    Credentials,
    check_reachable,
    shared_client,
)
from pulsar_spark.client.client import FIRST_CONTACT, impatient_client
from pulsar_spark.client.net.session import Purpose
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    ClosedError,
    ConnectError,
    NotReadyError,
    ProtocolError,
    TopicNotFoundError,
)
from pulsar_spark.ids import TopicName, TopicPattern
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import TOPIC, client_of, hurry, numbered, open_consumer, reader, singles
from tests.fake_broker import HANG, FakeBroker, Held, cut, redirects, refuses, silence
from tests.fake_clients import Type


def name(text):
    return TopicName.parse(text)


# ---- topics


@pytest.mark.parametrize("count", [100_001, 2**31 - 1, 2**32 - 1])
def test_a_number_of_partitions_that_cannot_be_is_refused(broker, client, count):
    broker.partitions["persistent://public/default/parted"] = count
    with pytest.raises(ProtocolError, match=f"{count} partitions; the maximum is 100000"):
        client.partitions(name("parted"))


def test_the_first_partition_is_requested_once(broker, client):
    broker.create(TOPIC, 3)
    for _ in range(2):
        assert client.first_partition(TOPIC) == TOPIC.of_partition(0)
    assert len(broker.seen(Type.PARTITIONED_METADATA)) == 1
    client.forget_first_partition(TOPIC)
    assert client.first_partition(TOPIC) == TOPIC.of_partition(0)
    assert len(broker.seen(Type.PARTITIONED_METADATA)) == 2


def test_partitions(broker, client):
    broker.create("parted", 3)
    broker.create(TOPIC)
    assert client.partitions(name("parted")) == [name(f"parted-partition-{number}") for number in range(3)]
    assert client.partitions(name("parted-partition-2")) == [name("parted-partition-2")]
    assert client.partitions(TOPIC) == [TOPIC]


@pytest.mark.parametrize("text", ["missing", "parted-partition-3"])
def test_a_topic_that_does_not_exist(broker, client, text):
    broker.create("parted", 3)
    with pytest.raises(TopicNotFoundError) as caught:
        client.partitions(name(text))
    assert caught.value.topic == str(name(text))


def test_a_topic_may_be_created_for_producers_only(broker, client):
    assert client.partitions(TOPIC, create=True) == [TOPIC]
    with pytest.raises(TopicNotFoundError):
        client.partitions(TOPIC)
    asked = broker.seen(Type.PARTITIONED_METADATA)
    assert [one.metadata_auto_creation_enabled for one in asked] == [True, False]


def test_topics_of_a_namespace(broker, client):
    broker.create("parted", 2)
    broker.create("persistent://public/other/x")
    broker.create("a.1")
    found = client.topics_of_namespace("public", "default")
    assert set(found) == {name("parted-partition-0"), name("parted-partition-1"), name("a.1")}
    pattern = TopicPattern.parse("persistent://public/default/p.*|a.*")
    assert list(client.topics_matching(pattern)) == [name("a.1"), name("parted")]
    assert client.topics_matching(TopicPattern.parse("public/default/a")) == {}


def test_only_what_a_pattern_may_mean_is_listed(broker, client):
    for number in range(3):
        broker.create(f"a-{number}")
        broker.create(f"b-{number}")
    assert list(client.topics_matching(TopicPattern.parse("b-[12]"))) == [name("b-1"), name("b-2")]
    (asked,) = broker.seen(Type.GET_TOPICS_OF_NAMESPACE)
    assert asked.topics_pattern == "public/default/b-.*"


def test_more_topics_than_fit_in_a_message(broker, client):
    names = [f"{number:0200}" for number in range(30_000)]
    listed = [f"persistent://public/default/{each}" for each in names]

    def answer(connection, frame):
        request_id = frame.command.getTopicsOfNamespace.request_id
        connection.send(Type.GET_TOPICS_OF_NAMESPACE_RESPONSE, request_id=request_id, topics=listed)

    broker.script(Type.GET_TOPICS_OF_NAMESPACE, [answer])
    found = client.topics_matching(TopicPattern.parse(".*"))
    assert [topic.local for topic in found] == names
    assert len(broker.seen(Type.CONNECT)) == 1, "the connection is not lost by it"


def test_a_name_that_cannot_be_read_is_left_out_with_one_warning(broker, client, caplog):
    broker.create("good")
    names = ["persistent://public/default/good", "persistent://public/default/", "persistent://x/y"]

    def answer(connection, frame):
        request_id = frame.command.getTopicsOfNamespace.request_id
        connection.send(Type.GET_TOPICS_OF_NAMESPACE_RESPONSE, request_id=request_id, topics=names)

    broker.script(Type.GET_TOPICS_OF_NAMESPACE, [answer] * 3)
    for _ in range(3):
        assert list(client.topics_matching(TopicPattern.parse(".*"))) == [name("good")]
    assert caplog.text.count("is left out because its name is invalid") == 2


def test_a_right_that_is_missing_names_the_namespace(broker, client):
    broker.script(Type.GET_TOPICS_OF_NAMESPACE, [refuses(pb.AuthorizationError)])
    with pytest.raises(AuthError, match=r"; namespace public/default\. .*consume on the namespace"):
        client.topics_of_namespace("public", "default")


# ---- brokers that refuse, or say nothing


def test_what_passes_is_tried_again(broker, client):
    broker.create(TOPIC)
    broker.script(Type.PARTITIONED_METADATA, [refuses(pb.MetadataError), refuses(pb.ServiceNotReady), cut])
    assert client.partitions(TOPIC) == [TOPIC]
    assert len(broker.seen(Type.PARTITIONED_METADATA)) == 4
    assert len(broker.seen(Type.CONNECT)) == 2


def test_what_does_not_pass_is_not_tried_again(broker, client):
    broker.script(Type.PARTITIONED_METADATA, [refuses(pb.AuthorizationError, "no right")])
    with pytest.raises(AuthError, match="no right"):
        client.partitions(TOPIC)
    assert len(broker.seen(Type.PARTITIONED_METADATA)) == 1


def test_a_connection_that_gives_no_answer_is_given_up(broker):
    broker.create(TOPIC)
    broker.script(Type.PARTITIONED_METADATA, [silence])
    broker.script(Type.PING, [silence] * 9)
    with client_of(broker, connection_timeout=0.8) as client:
        assert client.partitions(TOPIC) == [TOPIC]
    assert [seen.connection for seen in broker.commands if seen.command.type == 21] == [0, 1]


@pytest.mark.parametrize("kind", [Type.PARTITIONED_METADATA, Type.LOOKUP, Type.GET_TOPICS_OF_NAMESPACE])
def test_a_request_without_an_answer_costs_no_consumer_its_connection(broker, kind):
    """As where the metadata store is down: the broker serves consumers, and answers a PING."""
    broker.publish(TOPIC, *singles(numbered(2)))
    with client_of(broker, connection_timeout=0.8) as client:
        consumer = open_consumer(client)
        assert len(consumer.receive(client.operation(), 1)) == 1
        broker.script(kind, [silence])
        if kind == Type.LOOKUP:
            with pytest.raises(NotReadyError, match="did not answer LOOKUP"):
                locate(client)
        elif kind == Type.PARTITIONED_METADATA:
            assert client.partitions(TOPIC) == [TOPIC]
        else:
            assert client.topics_of_namespace("public", "default") == [TOPIC]
        assert len(consumer.receive(client.operation(), 1)) == 1
        consumer.close()
    assert len(broker.seen(Type.SUBSCRIBE)) == len(broker.seen(Type.CONNECT)) == 1
    assert broker.seen(Type.PING)


def test_a_silence_that_is_longer_than_an_operation_ends_in_a_later_one(broker):
    broker.create(TOPIC)
    broker.script(Type.PARTITIONED_METADATA, [silence] * 2)
    broker.script(Type.PING, [silence] * 9)
    with client_of(broker, connection_timeout=1.0) as client:
        session = client.service(client.operation())
        hurry(client, 0.3)
        with pytest.raises(NotReadyError, match="did not answer PARTITIONED_METADATA"):
            client.partitions(TOPIC)
        assert session.error is None, "a short silence says nothing of a connection"
        hurry(client, HANG)
        assert client.partitions(TOPIC) == [TOPIC]
        assert "answers no PARTITIONED_METADATA, PING" in str(session.error)


def test_the_last_error_is_raised_when_the_time_is_over(broker, client):
    broker.script(Type.PARTITIONED_METADATA, [refuses(pb.ServiceNotReady, "loading")] * 99)
    hurry(client, 0.4)
    with pytest.raises(NotReadyError, match="loading"):
        client.partitions(TOPIC)
    assert len(broker.seen(Type.PARTITIONED_METADATA)) > 1


def test_a_closed_client_asks_nobody(broker, client):
    client.check()
    client.close()
    with pytest.raises(ClosedError):
        client.partitions(TOPIC)
    assert broker.seen(Type.PARTITIONED_METADATA) == []


# ---- lookups


def locate(client):
    return client.locate(TOPIC, Purpose.READ, client.operation())


def test_the_broker_that_serves_the_topic(broker, client):
    assert locate(client).address == broker.address
    assert [one.topic for one in broker.seen(Type.LOOKUP)] == [str(TOPIC)]
    assert len(broker.seen(Type.CONNECT)) == 1


def test_look_ups_of_who_writes_do_not_take_the_connection_that_writes(broker, client):
    """A broker that throttles publishing does not read that one."""
    writing = client.locate(TOPIC, Purpose.WRITE, client.operation())
    broker.script(Type.PING, [silence] * 99)
    assert client.locate(TOPIC, Purpose.WRITE, client.operation()) is writing
    assert locate(client) is not writing
    assert {seen.connection for seen in broker.commands if seen.command.type == Type.LOOKUP} == {0}
    assert len(broker.seen(Type.CONNECT)) == 2


@pytest.mark.parametrize("is_authoritative", [True, False])
def test_a_redirect_is_followed(broker, client, is_authoritative):
    with FakeBroker() as owner:
        owner.create(TOPIC)
        broker.script(Type.LOOKUP, [redirects(owner.url, authoritative=is_authoritative)])
        with Consumer(client, TOPIC, reader()):
            assert [one.topic.name for one in owner.open_consumers] == [str(TOPIC)]
        assert [one.authoritative for one in owner.seen(Type.LOOKUP)] == [is_authoritative]
        assert [one.authoritative for one in broker.seen(Type.LOOKUP)] == [False]
        assert broker.seen(Type.SUBSCRIBE) == []
        client.close()


def test_redirects_without_end_are_followed_slowly_and_in_time(broker):
    broker.script(Type.LOOKUP, [redirects(broker.url)] * 10**5)
    with client_of(broker, operation_timeout=1.5) as client:
        with pytest.raises(ProtocolError, match=r"redirected \d+ times") as caught:
            open_consumer(client)
        assert caught.value.topic == str(TOPIC)
    assert 3 <= len(broker.seen(Type.LOOKUP)) <= 15


def test_redirects_up_to_a_limit_of_ones_own(broker):
    broker.script(Type.LOOKUP, [redirects(broker.url)] * 30)
    with client_of(broker, max_lookup_redirects=2) as client:
        with pytest.raises(ProtocolError, match="redirected more than 2 times"):
            locate(client)
        assert len(broker.seen(Type.LOOKUP)) == 3


def test_each_look_up_names_the_listener(broker):
    with FakeBroker() as owner:
        broker.script(Type.LOOKUP, [redirects(owner.url)])
        with client_of(broker, listener_name="external") as client:
            locate(client)
        asked = [*broker.seen(Type.LOOKUP), *owner.seen(Type.LOOKUP)]
        assert [one.advertised_listener_name for one in asked] == ["external"] * 2


def test_no_listener_is_named_by_default(broker, client):
    locate(client)
    (asked,) = broker.seen(Type.LOOKUP)
    assert not asked.HasField("advertised_listener_name")


def test_look_ups_have_a_time_of_their_own(broker):
    """The time for all operations, HANG, is not waited for."""
    broker.create(TOPIC)
    broker.script(Type.PARTITIONED_METADATA, [refuses(pb.ServiceNotReady, "loading")] * 99)
    with client_of(broker, lookup_timeout=0.3) as client:
        client.check()
        with pytest.raises(NotReadyError, match="loading"):
            client.partitions(TOPIC)
        broker.script(Type.LOOKUP, [silence])
        with pytest.raises(NotReadyError, match=r"did not answer LOOKUP within 0\.[0-3]"):
            locate(client)


def test_look_ups_may_take_longer_than_other_operations(broker):
    broker.create(TOPIC)
    broker.script(Type.PARTITIONED_METADATA, [refuses(pb.ServiceNotReady, "loading")] * 5)
    with client_of(broker, lookup_timeout=HANG) as client:
        hurry(client, 0.01)
        assert client.partitions(TOPIC) == [TOPIC]


def test_a_look_up_that_fails(broker, client):
    broker.script(Type.LOOKUP, [refuses(pb.TopicNotFound, "Namespace not found")])
    with pytest.raises(TopicNotFoundError, match="Namespace not found") as caught:
        locate(client)
    assert caught.value.topic == str(TOPIC)


def test_a_redirect_without_an_address(broker, client):
    broker.script(Type.LOOKUP, [redirects("http://x:1")])
    with pytest.raises(ProtocolError, match="no usable address"):
        locate(client)


def asked_for(broker, client, topics):
    """The topics of all look-ups, once each has a session."""
    for topic in topics:
        client.kept_session(topic, Purpose.READ, client.operation())
    return [one.topic for one in broker.seen(Type.LOOKUP)]


def test_topics_are_looked_up_in_parallel(broker, client):
    topics = [TOPIC.of_partition(number) for number in range(5)]
    held = Held(broker)
    broker.script(Type.LOOKUP, [held] * 5)
    with ThreadPoolExecutor(1) as pool:
        located = pool.submit(client.locate_all, topics)
        broker.wait_for_command(Type.LOOKUP, 5)
        held.release()
        located.result()
    client.locate_all(topics)
    assert asked_for(broker, client, topics) == list(map(str, topics))


def test_look_ups_that_fail_in_parallel_are_repeated_one_by_one(broker, client, monkeypatch):
    monkeypatch.setattr("pulsar_spark.client.client._PARALLEL_TIMEOUT", 0.3)
    topics = [TOPIC.of_partition(number) for number in range(4)]
    broker.script(Type.LOOKUP, [refuses(pb.ServiceNotReady, "loading"), redirects(broker.url), silence])
    client.locate_all(topics)
    assert asked_for(broker, client, topics) == [*map(str, topics), *map(str, topics[:3])]


def test_without_a_broker_nothing_is_looked_up_in_parallel():
    with Client(ClientOptions(service_url="pulsar://127.0.0.1:1")) as client:
        client.locate_all([TOPIC])


# ---- who this is


def test_check_is_silent_where_the_broker_takes_the_client_in():
    with FakeBroker(token=b"t") as broker:
        with client_of(broker, credentials=Credentials("token", "t")) as client:
            client.check()
        for credentials in (None, Credentials("token", "other")):
            with client_of(broker, credentials=credentials) as client, pytest.raises(AuthError):
                client.check()
        assert len(broker.seen(Type.CONNECT)) == 3


def test_the_client_of_a_process_is_made_once(broker):
    options = ClientOptions(service_url=broker.url)
    other = ClientOptions(service_url=broker.url, operation_timeout=3.0)
    assert shared_client(options) is shared_client(ClientOptions(service_url=broker.url))
    assert shared_client(other) is not shared_client(options)


def test_ids_are_unique(client):
    assert len({client.new_id() for _ in range(10)}) == 10


def test_errors_of_no_kind_of_their_own(broker, client):
    broker.script(Type.PARTITIONED_METADATA, [refuses(pb.UnknownError, "first line\nsecond line")])
    with pytest.raises(BrokerError, match="first line") as caught:
        client.partitions(TOPIC)
    assert "second" not in str(caught.value)


def test_nobody_listens():
    with FakeBroker() as broker:
        pass
    with client_of(broker, operation_timeout=0.1) as client, pytest.raises(ConnectError):
        client.check()


def test_a_client_of_several_hosts_goes_on_with_those_that_answer():
    with FakeBroker() as first, FakeBroker() as second:
        second.create(TOPIC)
        first.create(TOPIC)
        url = f"{first.url},{second.address}"
        with Client(ClientOptions(service_url=url)) as client:
            assert client.partitions(TOPIC) == [TOPIC]
            (here,) = [one for one in (first, second) if one.seen(Type.CONNECT)]
            (there,) = {first, second} - {here}
            here.script(Type.CONNECT, [cut] * 99)
            here.cut()
            assert client.partitions(TOPIC) == [TOPIC]
            assert len(there.seen(Type.PARTITIONED_METADATA)) == 1


@pytest.fixture
def nowhere():
    """The URL of a port at which nobody listens."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    return f"pulsar://localhost:{port}"


@pytest.mark.parametrize(("given", "taken"), [(600.0, FIRST_CONTACT), (0.5, 0.5)])
def test_it_is_never_more_patient_than_the_user(given, taken):
    options = ClientOptions(
        service_url="pulsar://localhost:1", operation_timeout=given, connection_timeout=given
    )
    with impatient_client(options) as client:
        assert client.options.operation_timeout == client.options.connection_timeout == taken
        assert client.options.service_url == options.service_url
        assert client.options.lookup_timeout is None


@pytest.mark.parametrize(("given", "taken"), [(600.0, FIRST_CONTACT), (0.5, 0.5)])
def test_look_ups_are_not_more_patient_either(given, taken):
    options = ClientOptions(service_url="pulsar://localhost:1", lookup_timeout=given)
    with impatient_client(options) as client:
        assert client.options.lookup_timeout == taken


def test_a_wrong_address_is_an_error_in_seconds(nowhere):
    began = time.monotonic()
    with pytest.raises(ConnectError):
        check_reachable(ClientOptions(service_url=nowhere, operation_timeout=0.3, connection_timeout=0.3))
    assert time.monotonic() - began < 60.0
