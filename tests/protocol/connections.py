"""Connections without their socket, what a broker says to them, and what they have to say."""

import struct

from pulsar_spark.protocol.connection import Connection
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb

KEEP_ALIVE = 30
TIMEOUT = 10
DOUBT = 4.5  # of a peer that owes an answer: until a PING, and again until it counts as silent
MIB = 1024 * 1024

Type = pb.BaseCommand


def framed(command, section=b""):
    body = command.SerializePartialToString()
    return struct.pack(">II", 4 + len(body) + len(section), len(body)) + body + section


def sent(connection):
    """Take what is to go out, parsed."""
    stream = b"".join(bytes(buffer) for buffer in connection.outgoing.take(10**9, 10**9, 0.0))
    found = []
    while stream:
        total, size = struct.unpack_from(">II", stream)
        found.append(pb.BaseCommand.FromString(stream[8 : 8 + size]))
        stream = stream[4 + total :]
    return found


def kinds(found):
    return [pb.BaseCommand.Type.Name(command.type) for command in found]


def connected_frame(**fields):
    return framed(pb.BaseCommand(type=Type.CONNECTED, connected={"server_version": "Pulsar 4", **fields}))


PING = framed(pb.BaseCommand(type=Type.PING, ping={}))
PONG = framed(pb.BaseCommand(type=Type.PONG, pong={}))


def success(request_id):
    return framed(pb.BaseCommand(type=Type.SUCCESS, success={"request_id": request_id}))


def error_frame(request_id, code, text="no"):
    return framed(
        pb.BaseCommand(type=Type.ERROR, error={"request_id": request_id, "error": code, "message": text})
    )


def new_connection(now=0, **options):
    given = {"keep_alive": KEEP_ALIVE, "timeout": TIMEOUT, "peer": "the broker at host:6650", **options}
    return Connection(now, **given)


def lookup(request_id):
    return commands.lookup(request_id, "t", authoritative=False)
