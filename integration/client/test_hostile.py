"""Peers that are no broker, or a broken one: coded errors in time, and nothing left behind."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from integration.broker.waiting import HANG, promptly, wait_until
from integration.chaos.leaks import little_memory, nothing_left
from integration.chaos.messages import columns_of, numbered
from pulsar_spark.client import (
    Client,
    ClientOptions,
    Consumer,
    Deadline,
    ProducerOptions,
    SubscriptionOptions,
    TopicWriter,
)
from pulsar_spark.errors import ClosedError, PulsarError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import FrameReader, encode_command

TOPIC = TopicName.parse("topic")
Talk = Callable[[socket.socket], None]


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    """Whatever a peer sends takes less than 100 MB, either."""
    with nothing_left(), little_memory(100):
        yield


class Server:
    """Accepts connections one after the other and lets `talk` have each; notes how many there were."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"pulsar://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(HANG)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._talk(connection)
            except OSError:
                return
            finally:
                self._open.discard(connection)


def listen_on(connection: socket.socket) -> None:
    """Take what comes until the other side closes."""
    while connection.recv(1 << 16):
        pass


def silent(connection: socket.socket) -> None:
    listen_on(connection)


def closes(connection: socket.socket) -> None:
    del connection


def resets(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def says(data: bytes) -> Talk:
    def talk(connection: socket.socket) -> None:
        connection.sendall(data)
        listen_on(connection)

    return talk


def drips(connection: socket.socket) -> None:
    """One byte at a time of a frame that is never complete: not silent, and yet no answer."""
    connection.settimeout(0.05)
    connection.sendall(struct.pack(">II", 100_000, 90_000))
    while True:
        connection.sendall(b"\0")
        try:
            if not connection.recv(1 << 16):
                return
        except TimeoutError:
            continue


def command(kind: int, **fields: object) -> bytes:
    return encode_command(pb.BaseCommand(type=kind, **fields))  # type: ignore[arg-type]


CONNECTED = command(
    pb.BaseCommand.CONNECTED, connected=pb.CommandConnected(server_version="fake", protocol_version=21)
)

HANDSHAKES: dict[str, Talk] = {
    "silence": silent,
    "close": closes,
    "reset": resets,
    "drip": drips,
    "http": says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
    "garbage": says(random.Random(7).randbytes(5000)),
    "zeros": says(bytes(1000)),
    "huge frame": says(struct.pack(">II", 0xFFFFFFFF, 10)),
    "frame over the limit": says(struct.pack(">I", 5 * 1024 * 1024 + 10 * 1024 + 1)),
    "command longer than its frame": says(struct.pack(">II", 8, 100) + b"abcd"),
    "no protobuf": says(struct.pack(">II", 8, 4) + b"\xff\xff\xff\xff"),
    "type without body": says(struct.pack(">II", 6, 2) + b"\x08\x03"),
    "unknown type": says(struct.pack(">II", 7, 3) + b"\x08\xc8\x01"),
    "half of CONNECTED": says(CONNECTED[:-3]),
    "CONNECTED twice": says(CONNECTED + CONNECTED),
    "a receipt before CONNECTED": says(
        command(pb.BaseCommand.SEND_RECEIPT, send_receipt=pb.CommandSendReceipt(producer_id=1, sequence_id=1))
    ),
    "an error before CONNECTED": says(
        command(
            pb.BaseCommand.ERROR,
            error=pb.CommandError(request_id=(1 << 64) - 1, error=pb.AuthenticationError, message="no"),
        )
    ),
    "silence after CONNECTED": says(CONNECTED),
    "close after CONNECTED": lambda connection: connection.sendall(CONNECTED),
    "garbage after CONNECTED": says(CONNECTED + b"\xff" * 100),
    "an unknown error code": says(
        CONNECTED
        + command(
            pb.BaseCommand.ERROR,
            error=pb.CommandError(request_id=0, error=pb.UnknownError, message="line 1\nline 2"),
        )
    ),
}

OPERATIONS: dict[str, Callable[[Client], object]] = {
    "partitions": lambda client: client.partitions(TOPIC),
    "consumer": lambda client: Consumer(client, TOPIC, SubscriptionOptions(name="s", durable=False)),
    "writer": lambda client: TopicWriter(client, TOPIC, ProducerOptions()),
}


# What is asked for matters only where the handshake succeeds.
@pytest.mark.parametrize(
    ("talk", "operation"),
    [
        (talk, operation)
        for talk in HANDSHAKES
        for operation in (
            OPERATIONS if "after CONNECTED" in talk or "unknown error" in talk else ["partitions"]
        )
    ],
)
def test_is_a_coded_error_in_time(talk: str, operation: str) -> None:
    with Server(HANDSHAKES[talk]) as server:
        options = ClientOptions(service_url=server.url, operation_timeout=0.4, connection_timeout=0.2)
        with Client(options) as client, promptly(15.0), pytest.raises(PulsarError) as caught:
            OPERATIONS[operation](client)
        assert str(caught.value).startswith("[PULSAR_")
        assert "\n" not in str(caught.value)
        assert server.connections >= 1


# ---- a fake broker that answers properly until the test has it do otherwise


class FakeBroker:
    """Answers lookups with itself, and what else is asked as told; a `talk` for Server."""

    def __init__(self, answers: dict[int, Callable[[pb.BaseCommand], bytes]]) -> None:
        self.answers = answers
        self.seen: list[int] = []
        self.url = ""

    def __call__(self, connection: socket.socket) -> None:
        reader = FrameReader()
        while data := connection.recv(1 << 16):
            for frame in reader.feed(data):
                self.seen.append(frame.command.type)
                connection.sendall(self._answer(frame.command))

    def _answer(self, asked: pb.BaseCommand) -> bytes:
        if asked.type in self.answers:
            return self.answers[asked.type](asked)
        if asked.type == pb.BaseCommand.CONNECT:
            return CONNECTED
        if asked.type == pb.BaseCommand.PARTITIONED_METADATA:
            answer = pb.CommandPartitionedTopicMetadataResponse(
                partitions=0,
                request_id=asked.partitionMetadata.request_id,
                response=pb.CommandPartitionedTopicMetadataResponse.Success,
            )
            return command(pb.BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=answer)
        if asked.type == pb.BaseCommand.LOOKUP:
            return lookup_answer(asked, self.url)
        if asked.type == pb.BaseCommand.SUBSCRIBE:
            return success(asked.subscribe.request_id)
        if asked.type == pb.BaseCommand.PRODUCER:
            return producer_success(asked)
        if asked.type == pb.BaseCommand.CLOSE_CONSUMER:
            return success(asked.close_consumer.request_id)
        if asked.type == pb.BaseCommand.CLOSE_PRODUCER:
            return success(asked.close_producer.request_id)
        if asked.type == pb.BaseCommand.SEND:
            receipt = pb.CommandSendReceipt(
                producer_id=asked.send.producer_id, sequence_id=asked.send.sequence_id
            )
            return command(pb.BaseCommand.SEND_RECEIPT, send_receipt=receipt)
        return b""


def success(request_id: int) -> bytes:
    return command(pb.BaseCommand.SUCCESS, success=pb.CommandSuccess(request_id=request_id))


def producer_success(asked: pb.BaseCommand) -> bytes:
    answer = pb.CommandProducerSuccess(
        request_id=asked.producer.request_id, producer_name="fake-0", last_sequence_id=-1
    )
    return command(pb.BaseCommand.PRODUCER_SUCCESS, producer_success=answer)


def lookup_answer(
    asked: pb.BaseCommand,
    url: str,
    *,
    redirect: bool = False,
    authoritative: bool = True,
    proxy: bool = False,
) -> bytes:
    kind = pb.CommandLookupTopicResponse.Redirect if redirect else pb.CommandLookupTopicResponse.Connect
    answer = pb.CommandLookupTopicResponse(
        request_id=asked.lookupTopic.request_id,
        response=kind,
        brokerServiceUrl=url,
        authoritative=authoritative,
        proxy_through_service_url=proxy,
    )
    return command(pb.BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer)


def options_for(server: Server, seconds: float = HANG) -> ClientOptions:
    return ClientOptions(service_url=server.url, operation_timeout=seconds, connection_timeout=HANG)


def test_a_producer_closed_right_after_it_was_opened_is_opened_again() -> None:
    """PRODUCER_SUCCESS and CLOSE_PRODUCER in one segment, as an unload at that moment gives them."""
    opened = 0

    def open_and_close(asked: pb.BaseCommand) -> bytes:
        nonlocal opened
        opened += 1
        if opened > 1:
            return producer_success(asked)
        closed = pb.CommandCloseProducer(producer_id=asked.producer.producer_id, request_id=(1 << 64) - 1)
        return producer_success(asked) + command(pb.BaseCommand.CLOSE_PRODUCER, close_producer=closed)

    def receipt_if_open(asked: pb.BaseCommand) -> bytes:
        receipt = pb.CommandSendReceipt(
            producer_id=asked.send.producer_id, sequence_id=asked.send.sequence_id
        )
        # To a producer that it has closed a broker answers nothing.
        return command(pb.BaseCommand.SEND_RECEIPT, send_receipt=receipt) if opened > 1 else b""

    broker = FakeBroker({pb.BaseCommand.PRODUCER: open_and_close, pb.BaseCommand.SEND: receipt_if_open})
    with Server(broker) as server:
        broker.url = server.url
        with (
            Client(options_for(server)) as client,
            TopicWriter(client, TOPIC, ProducerOptions(batching=False, send_timeout=HANG)) as writer,
        ):
            writer.send(columns_of(numbered(1)))
            writer.flush()
    assert opened == 2


def test_a_consumer_closed_right_after_it_was_opened_is_opened_again() -> None:
    subscribed = 0

    def open_and_close(asked: pb.BaseCommand) -> bytes:
        nonlocal subscribed
        subscribed += 1
        closed = pb.CommandCloseConsumer(consumer_id=asked.subscribe.consumer_id, request_id=(1 << 64) - 1)
        after = command(pb.BaseCommand.CLOSE_CONSUMER, close_consumer=closed) if subscribed == 1 else b""
        return success(asked.subscribe.request_id) + after

    broker = FakeBroker({pb.BaseCommand.SUBSCRIBE: open_and_close})
    with Server(broker) as server:
        broker.url = server.url
        options = SubscriptionOptions(name="s", durable=False)
        with (
            Client(options_for(server)) as client,
            Consumer(client, TOPIC, options, Permits(1000)) as consumer,
        ):
            waiting = threading.Thread(target=receive_nothing, args=(consumer,))
            waiting.start()
            wait_until(lambda: subscribed == 2)
            client.close()
            waiting.join()
    assert subscribed == 2


def receive_nothing(consumer: Consumer) -> None:
    """Receive until the client is closed."""
    with pytest.raises(ClosedError):
        consumer.receive(Deadline(HANG))


def test_a_receipt_for_a_later_message_opens_the_connection_again() -> None:
    """The broker skipped one: it must be sent again, before anything else."""
    sent: list[int] = []

    def skip_the_first(asked: pb.BaseCommand) -> bytes:
        sent.append(asked.send.sequence_id)
        if len(sent) == 1:
            return b""
        receipt = pb.CommandSendReceipt(
            producer_id=asked.send.producer_id, sequence_id=asked.send.sequence_id
        )
        return command(pb.BaseCommand.SEND_RECEIPT, send_receipt=receipt)

    broker = FakeBroker({pb.BaseCommand.SEND: skip_the_first})
    with Server(broker) as server:
        broker.url = server.url
        with (
            Client(options_for(server)) as client,
            TopicWriter(client, TOPIC, ProducerOptions(batching=False, send_timeout=HANG)) as writer,
        ):
            writer.send(columns_of(numbered(3)))
            writer.flush()
        assert server.connections == 3  # One for the partitions, two for the producer.
    assert sent[-3:] == [0, 1, 2]


def test_follows_redirects_to_another_broker() -> None:
    asked_second: list[bool] = []
    second = FakeBroker({})
    with Server(second) as there:

        def answer_second(asked: pb.BaseCommand) -> bytes:
            asked_second.append(asked.lookupTopic.authoritative)
            return lookup_answer(asked, there.url)

        second.answers[pb.BaseCommand.LOOKUP] = answer_second
        first = FakeBroker(
            {pb.BaseCommand.LOOKUP: lambda asked: lookup_answer(asked, there.url, redirect=True)}
        )
        with Server(first) as here, Client(options_for(here)) as client:
            Consumer(client, TOPIC, SubscriptionOptions(name="s", durable=False)).close()
    assert asked_second == [True]
    assert pb.BaseCommand.SUBSCRIBE in second.seen
    assert pb.BaseCommand.SUBSCRIBE not in first.seen


def test_redirects_in_a_circle_end() -> None:
    broker = FakeBroker({})
    broker.answers[pb.BaseCommand.LOOKUP] = lambda asked: lookup_answer(asked, broker.url, redirect=True)
    with Server(broker) as server:
        broker.url = server.url
        with (
            Client(options_for(server, 3.0)) as client,
            promptly(25.0),
            pytest.raises(PulsarError, match=r"redirected \d+ times"),
        ):
            Consumer(client, TOPIC, SubscriptionOptions(name="s", durable=False))


@pytest.mark.parametrize("url", ["", "http://x:1", "pulsar://", "pulsar://:99999", "pulsar://a b:1"])
def test_a_lookup_that_names_no_address_is_an_error(url: str) -> None:
    broker = FakeBroker({pb.BaseCommand.LOOKUP: lambda asked: lookup_answer(asked, url)})
    with (
        Server(broker) as server,
        Client(options_for(server, 2.0)) as client,
        pytest.raises(PulsarError, match="no usable address"),
    ):
        Consumer(client, TOPIC, SubscriptionOptions(name="s", durable=False))


def test_a_proxied_lookup_goes_through_the_service_url() -> None:
    named: list[str] = []

    def connected(asked: pb.BaseCommand) -> bytes:
        named.append(asked.connect.proxy_to_broker_url)
        return CONNECTED

    broker = FakeBroker(
        {
            pb.BaseCommand.CONNECT: connected,
            pb.BaseCommand.LOOKUP: lambda asked: lookup_answer(asked, "pulsar://10.9.9.9:6651", proxy=True),
        }
    )
    with Server(broker) as server, Client(options_for(server)) as client:
        Consumer(client, TOPIC, SubscriptionOptions(name="s", durable=False)).close()
    assert named == ["", "10.9.9.9:6651"]


def test_a_host_that_accepts_and_says_nothing_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "randrange", lambda count: 0)  # by this the first host is chosen
    broker = FakeBroker({})
    with Server(silent) as mute, Server(broker) as server:
        broker.url = server.url
        url = ",".join([mute.url, *[server.url.removeprefix("pulsar://")]])
        options = ClientOptions(service_url=url, operation_timeout=HANG, connection_timeout=2.0)
        with Client(options) as client:
            assert client.partitions(TOPIC) == [TOPIC]
        assert mute.connections > 0
