"""TopicSchemas: what brokers are asked, and what of it is kept."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pulsar_spark.client.schemas import TopicSchemas
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    NotReadyError,
    ProtocolError,
    SchemaError,
    TopicNotFoundError,
)
from pulsar_spark.ids import TopicName
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.wire_values import to_wire_schema
from tests.client.clients import TOPIC, client_of
from tests.fake_broker import HANG, FakeBroker, Held, cut, pass_on, redirects, refuses, silence
from tests.fake_clients import Type

OTHER = TopicName.parse("other")


def avro(text, **properties):
    return Schema(SchemaType.AVRO, text.encode(), properties, "public/default/topic")


A, B, C = avro("a"), avro("b", x="1"), avro("c")


def register(broker, *schemas, topic=TOPIC):
    with broker.changed:
        return [broker.schemas.register(str(topic), to_wire_schema(schema)) for schema in schemas]


def asked(broker):
    """The versions that were asked for, None for the latest."""
    return [
        int.from_bytes(each.schema_version, "big") if each.HasField("schema_version") else None
        for each in broker.seen(Type.GET_SCHEMA)
    ]


def answers(**fields):
    """Answer a request for a schema with these fields."""

    def action(connection, frame):
        request_id = frame.command.getSchema.request_id
        connection.send(Type.GET_SCHEMA_RESPONSE, request_id=request_id, **fields)

    return action


# ---- what there is


def test_versions(broker, client):
    assert register(broker, A, B) == [0, 1]
    assert client.schemas.latest(TOPIC) == (1, B)
    assert client.schemas.at(TOPIC, 0) == A
    assert client.schemas.at(TOPIC, 1) == B
    assert client.schemas.at(TOPIC, 2) is None
    assert client.schemas.at_all(TOPIC, [1, 7, 0, 1]) == {0: A, 1: B}


def test_a_topic_without_a_schema(broker, client):
    broker.create(TOPIC)
    assert client.schemas.latest(TOPIC) is None
    assert client.schemas.at(TOPIC, 0) is None
    assert client.schemas.at_all(TOPIC, []) == {}


def test_a_schema_that_was_deleted(broker, client):
    register(broker, A)
    broker.schemas.delete(str(TOPIC))
    assert client.schemas.latest(TOPIC) is None
    assert [client.schemas.at(TOPIC, version) for version in (0, 1)] == [None, None]
    assert register(broker, C) == [2]
    assert client.schemas.latest(TOPIC) == (2, C)


def test_the_latest_is_never_stale(broker, client):
    register(broker, A)
    assert client.schemas.latest(TOPIC) == (0, A)
    register(broker, B)
    assert client.schemas.latest(TOPIC) == (1, B)
    broker.schemas.delete(str(TOPIC))
    assert client.schemas.latest(TOPIC) is None


def test_partitions_share_a_schema(broker, client):
    register(broker, A)
    for number in range(3):
        assert client.schemas.at(TOPIC.of_partition(number), 0) == A
    assert client.schemas.latest(TOPIC.of_partition(2)) == (0, A)
    assert [each.topic for each in broker.seen(Type.GET_SCHEMA)] == [str(TOPIC)] * 2


# ---- what is kept


def test_each_version_is_asked_for_once(broker, client):
    register(broker, A, B, C)
    for _ in range(3):
        assert client.schemas.at_all(TOPIC, [0, 2]) == {0: A, 2: C}
    assert asked(broker)[0] is None
    assert sorted(asked(broker)[1:]) == [0, 2]


def test_the_latest_need_not_be_asked_for_as_a_version(broker, client):
    register(broker, A)
    client.schemas.latest(TOPIC)
    assert client.schemas.at(TOPIC, 0) == A
    assert asked(broker) == [None]


def test_what_a_caller_knows_need_not_be_asked_for(broker, client):
    client.schemas.remember(TOPIC.of_partition(1), 5, A)
    assert client.schemas.at(TOPIC, 5) == A
    assert asked(broker) == []


def test_topics_are_kept_apart(broker, client):
    register(broker, A)
    register(broker, B, topic=OTHER)
    assert [client.schemas.at(topic, 0) for topic in (TOPIC, OTHER)] == [A, B]


def test_what_is_missing_is_asked_for_again(broker, client):
    register(broker, A)
    assert client.schemas.at(TOPIC, 1) is None
    register(broker, B)
    assert client.schemas.at(TOPIC, 1) == B
    assert asked(broker) == [1, 1]


def test_many_threads_share_a_request(broker, client):
    register(broker, A)
    held = Held(broker)
    broker.script(Type.GET_SCHEMA, [held])
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(client.schemas.at, TOPIC, 0) for _ in range(8)]
        broker.wait_for_command(Type.GET_SCHEMA)
        held.release()
        assert [each.result(HANG) for each in found] == [A] * 8
    assert asked(broker) == [0]


def test_topics_do_not_wait_for_each_other(broker, client):
    register(broker, A)
    register(broker, B, topic=OTHER)
    held = Held(broker)
    broker.script(Type.GET_SCHEMA, [held])
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(client.schemas.at, TOPIC, 0)
        broker.wait_for_command(Type.GET_SCHEMA)
        try:
            assert pool.submit(client.schemas.at, OTHER, 0).result(HANG) == B
            assert not slow.done()
        finally:
            held.release()
        assert slow.result(HANG) == A


def test_a_version_that_is_registered_while_it_is_asked_for_is_found(broker, client):
    """A thread that waits for another's request must not take over that there was none."""
    late = []

    def register_and_say_none(connection, frame):
        register(broker, A)
        late.append(pool.submit(client.schemas.at, TOPIC, 0))
        answers(error_code=pb.TopicNotFound)(connection, frame)

    broker.script(Type.GET_SCHEMA, [register_and_say_none])
    with ThreadPoolExecutor(1) as pool:
        assert client.schemas.at(TOPIC, 0) is None
        assert late[0].result(HANG) == A


def test_what_one_broker_does_not_know_yet_is_asked_of_the_one_that_serves_the_topic(broker, client):
    register(broker, A)
    with FakeBroker() as owner:
        register(owner, A, B, C)
        part = TOPIC.of_partition(1)
        broker.script(Type.LOOKUP, [redirects(owner.url, authoritative=True)] * 2)
        assert client.schemas.at_all(part, [2]) == {2: C}
        assert client.schemas.at_all(part, [0, 1, 2, 3]) == {0: A, 1: B, 2: C}
        assert asked(broker) == [2, None, 0]
        assert asked(owner) == [2, None, 1]
        assert [each.topic for each in owner.seen(Type.LOOKUP)] == [str(part)]
        owner.schemas.delete(str(TOPIC))
        register(owner, A)
        assert client.schemas.at_all(part, [3, 4], load="later") == {4: A}
    assert client.schemas.at(TOPIC, 5) is None


def test_numbers_that_no_topic_has_cost_two_requests(broker, client):
    register(broker, A, B)
    assert client.schemas.at_all(TOPIC, range(1, 10_000)) == {1: B}
    assert client.schemas.at_all(TOPIC, [-1, -(2**63)]) == {}
    assert asked(broker) == [None, 1, None]


def test_numbers_of_a_topic_without_a_schema(broker, client):
    assert client.schemas.at_all(TOPIC, range(1000)) == {}
    assert asked(broker) == [None, None]


def test_deleted_versions_do_not_hide_later_ones(broker, client):
    register(broker, A, B)
    broker.schemas.delete(str(TOPIC))
    register(broker, C)
    assert client.schemas.at_all(TOPIC, range(100)) == {3: C}
    assert asked(broker)[0] is asked(broker)[-1] is None
    assert sorted(asked(broker)[1:-1]) == [0, 1, 2, 3]


def test_the_least_used_are_dropped_when_there_are_too_many(broker, client):
    big = [avro(letter * 3000) for letter in "xyz"]
    register(broker, *big)
    schemas = TopicSchemas(client._ask_service, client._ask_owner, client.operation, max_bytes=10_000)
    for version in (0, 1, 0, 2, 0, 2, 1):
        assert schemas.at(TOPIC, version) == big[version]
    assert asked(broker) == [0, 1, 2, 1]


def test_one_that_is_larger_than_all_may_be_is_kept_alone(broker, client):
    large = avro("x" * 20_000)
    register(broker, A, large, B)
    schemas = TopicSchemas(client._ask_service, client._ask_owner, client.operation, max_bytes=10_000)
    for version, schema in [(0, A), (1, large), (1, large), (0, A), (2, B), (0, A), (2, B)]:
        assert schemas.at(TOPIC, version) == schema
    assert asked(broker) == [0, 1, 0, 2], "what is dropped is no longer counted"


def test_what_is_kept_again_is_counted_once(broker, client):
    register(broker, A, B)
    schemas = TopicSchemas(client._ask_service, client._ask_owner, client.operation, max_bytes=10_000)
    schemas.at(TOPIC, 0)
    for _ in range(20):
        schemas.remember(TOPIC, 1, B)
    schemas.at(TOPIC, 0)
    assert asked(broker) == [0]


# ---- a topic that is deleted and made anew counts from 0 again


def test_another_latest_schema_drops_what_is_kept(broker, client):
    register(broker, A, B)
    register(broker, B, topic=OTHER)
    assert client.schemas.at_all(TOPIC, [0, 1]) == {0: A, 1: B}
    assert client.schemas.at(OTHER, 0) == B
    broker.schemas.drop(str(TOPIC))
    register(broker, C, A)
    assert client.schemas.latest(TOPIC) == (1, A)
    assert client.schemas.at_all(TOPIC, [0, 1]) == {0: C, 1: A}
    assert client.schemas.at(OTHER, 0) == B
    assert asked(broker)[3:] == [0, None, 0], "what is kept of other topics stays"


def test_a_latest_number_below_one_that_is_kept_drops_it(broker, client):
    register(broker, A, B)
    assert client.schemas.at(TOPIC, 1) == B
    broker.schemas.drop(str(TOPIC))
    register(broker, C)
    assert client.schemas.latest(TOPIC) == (0, C)
    assert client.schemas.at(TOPIC, 1) is None


def test_no_latest_schema_drops_what_is_kept(broker, client):
    register(broker, A)
    assert client.schemas.at(TOPIC, 0) == A
    broker.schemas.drop(str(TOPIC))
    assert client.schemas.latest(TOPIC) is None
    assert client.schemas.at(TOPIC, 0) is None


def test_another_schema_that_a_caller_knows_drops_what_is_kept(broker, client):
    register(broker, A, B)
    assert client.schemas.at_all(TOPIC, [0, 1]) == {0: A, 1: B}
    broker.schemas.drop(str(TOPIC))
    register(broker, C, A)
    client.schemas.remember(TOPIC, 1, A)
    assert client.schemas.at_all(TOPIC, [0, 1]) == {0: C, 1: A}


def test_an_older_schema_that_a_caller_knows_drops_nothing(broker, client):
    register(broker, A, B)
    assert client.schemas.at(TOPIC, 1) == B
    client.schemas.remember(TOPIC, 0, A)
    assert client.schemas.at_all(TOPIC, [0, 1]) == {0: A, 1: B}
    assert asked(broker) == [1]


def test_what_is_kept_for_a_load_is_not_given_to_a_later_one(broker, client):
    register(broker, A)
    for _ in range(2):
        assert client.schemas.at_all(TOPIC, [0], load="first") == {0: A}
    broker.schemas.drop(str(TOPIC))
    register(broker, C, A)
    for _ in range(2):
        assert client.schemas.at_all(TOPIC, [0], load="second") == {0: C}
    assert asked(broker) == [0, 0]


# ---- brokers that refuse, or say nothing


@pytest.mark.parametrize(
    "call", [lambda schemas: schemas.latest(TOPIC), lambda schemas: schemas.at(TOPIC, 0)]
)
def test_what_passes_is_tried_again(broker, client, call):
    register(broker, A)
    broker.script(Type.GET_SCHEMA, [refuses(pb.MetadataError), refuses(pb.ServiceNotReady), cut])
    assert call(client.schemas)
    assert len(asked(broker)) == 4


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (pb.AuthorizationError, AuthError),
        (pb.IncompatibleSchema, SchemaError),
        (pb.InvalidTopicName, TopicNotFoundError),
        (pb.UnknownError, BrokerError),
    ],
)
def test_what_does_not_pass_is_an_error_at_once(broker, client, code, kind):
    broker.script(Type.GET_SCHEMA, [refuses(code, "not for you")] * 2)
    for call in (lambda: client.schemas.at(TOPIC, 0), lambda: client.schemas.latest(TOPIC)):
        with pytest.raises(kind, match="not for you") as caught:
            call()
        assert type(caught.value) is kind
        assert caught.value.topic == str(TOPIC)
    assert len(asked(broker)) == 2


def test_an_error_is_not_kept(broker, client):
    register(broker, A)
    broker.script(Type.GET_SCHEMA, [refuses(pb.AuthorizationError)])
    with pytest.raises(AuthError):
        client.schemas.at(TOPIC, 0)
    assert client.schemas.at(TOPIC, 0) == A


def test_a_broker_that_says_nothing(broker):
    broker.script(Type.GET_SCHEMA, [silence] * 10)
    with client_of(broker, operation_timeout=0.3, connection_timeout=0.1) as client:
        client.check()
        began = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            for each in [pool.submit(client.schemas.at, TOPIC, 0) for _ in range(4)]:
                assert isinstance(each.exception(HANG), NotReadyError)
        assert time.monotonic() - began < 5


def test_many_versions_each_have_a_timeout_of_their_own(broker):
    """All of them take longer than one operation may, and some are requested at the same time."""
    count, seconds = 24, 0.1
    register(broker, *(avro(f"version {version}") for version in range(count)))
    waiting, most = [], []

    def answer_late(connection, frame):
        waiting.append(frame)
        most.append(len(waiting))
        threading.Timer(seconds, answer, (connection, frame)).start()

    def answer(connection, frame):
        with broker.changed:
            waiting.remove(frame)
            connection.handle(frame)

    with client_of(broker, operation_timeout=3 * seconds) as client:
        client.check()
        broker.script(Type.GET_SCHEMA, [answer_late] * (count + 1))
        found = client.schemas.at_all(TOPIC, range(count))
    assert found == {version: avro(f"version {version}") for version in range(count)}
    assert max(most) == 2


def test_a_broker_that_fails_is_not_asked_for_all_versions(broker, client):
    register(broker, *(avro(f"version {version}") for version in range(64)))
    broker.script(Type.GET_SCHEMA, [pass_on, *[refuses(pb.AuthorizationError)] * 99])
    with pytest.raises(AuthError):
        client.schemas.at_all(TOPIC, range(64))
    assert len(asked(broker)) == 3


@pytest.mark.parametrize(
    "fields", [{"schema": to_wire_schema(A)}, {"schema": to_wire_schema(A), "schema_version": b"1"}, {}]
)
def test_an_answer_that_is_none(broker, client, fields):
    broker.script(Type.GET_SCHEMA, [answers(**fields)] * 100)
    with pytest.raises(ProtocolError):
        client.schemas.latest(TOPIC)
