"""Sockets, threads and time: a blocking client of one Pulsar cluster."""

from pulsar_spark.client.admin import Admin, Ledger, checked_admin_url
from pulsar_spark.client.ahead import ahead
from pulsar_spark.client.auth import Authentication, Credentials, path_of
from pulsar_spark.client.client import Client, ClientOptions, check_identity, shared_client
from pulsar_spark.client.consumer import Consumer, LastMessageId, SubscriptionOptions
from pulsar_spark.client.deadline import Deadline, epoch_ms, now
from pulsar_spark.client.encryption import (
    ConsumerCryptoFailureAction,
    CryptoKeyReader,
    Decryptor,
    EncryptionKeyInfo,
    Encryptor,
    KeyFolder,
    ProducerCryptoFailureAction,
)
from pulsar_spark.client.entries_between import position_before
from pulsar_spark.client.interceptors import ProducerInterceptor
from pulsar_spark.client.once import Once, last_sequence_id
from pulsar_spark.client.producer import Producer
from pulsar_spark.client.producer_options import AccessMode, ProducerOptions
from pulsar_spark.client.range_reader import read_range
from pulsar_spark.client.scout import EntryFacts, Scout, first_at, ledger_end, peek
from pulsar_spark.client.tail import Tail
from pulsar_spark.client.together import together
from pulsar_spark.client.topic_watch import TopicWatch
from pulsar_spark.client.transactions import Transaction, Transactions
from pulsar_spark.client.transport import TlsOptions
from pulsar_spark.client.writer import TopicWriter
from pulsar_spark.protocol.sent import Sent

__all__ = [
    "AccessMode",
    "Admin",
    "Authentication",
    "Client",
    "ClientOptions",
    "Consumer",
    "ConsumerCryptoFailureAction",
    "Credentials",
    "CryptoKeyReader",
    "Deadline",
    "Decryptor",
    "EncryptionKeyInfo",
    "Encryptor",
    "EntryFacts",
    "KeyFolder",
    "LastMessageId",
    "Ledger",
    "Once",
    "Producer",
    "ProducerCryptoFailureAction",
    "ProducerInterceptor",
    "ProducerOptions",
    "Scout",
    "Sent",
    "SubscriptionOptions",
    "Tail",
    "TlsOptions",
    "TopicWatch",
    "TopicWriter",
    "Transaction",
    "Transactions",
    "ahead",
    "check_identity",
    "checked_admin_url",
    "epoch_ms",
    "first_at",
    "last_sequence_id",
    "ledger_end",
    "now",
    "path_of",
    "peek",
    "position_before",
    "read_range",
    "shared_client",
    "together",
]
