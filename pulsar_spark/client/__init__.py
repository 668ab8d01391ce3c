"""Sockets, threads and time: a blocking client of one Pulsar cluster."""

from pulsar_spark.client.client import Client, ClientOptions, shared_client
from pulsar_spark.client.consumer import Consumer, LastMessageId, SubscriptionOptions
from pulsar_spark.client.deadline import Deadline
from pulsar_spark.client.producer import Producer, ProducerOptions
from pulsar_spark.client.range_reader import read_range
from pulsar_spark.client.writer import TopicWriter

__all__ = [
    "Client",
    "ClientOptions",
    "Consumer",
    "Deadline",
    "LastMessageId",
    "Producer",
    "ProducerOptions",
    "SubscriptionOptions",
    "TopicWriter",
    "read_range",
    "shared_client",
]
