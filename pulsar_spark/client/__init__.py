"""Sockets, threads and time: a blocking client of one Pulsar cluster.

Internal: these names are for spark, cli and integration, and change without notice; users import from
:mod:`pulsar_spark`.
"""

from pulsar_spark.arrow.arrays import parts_by_size
from pulsar_spark.client.client import Client, ClientOptions, check_identity, shared_client
from pulsar_spark.client.closing import Closing
from pulsar_spark.client.consuming.consumer import Consumer, close_consumers
from pulsar_spark.client.consuming.inbox import TopicEnd
from pulsar_spark.client.consuming.subscription_options import LastMessageId, SubscriptionOptions
from pulsar_spark.client.encryption import (
    ConsumerCryptoFailureAction,
    CryptoKeyReader,
    Decryptor,
    EncryptionKeyInfo,
    Encryptor,
    KeyFolder,
    ProducerCryptoFailureAction,
)
from pulsar_spark.client.first_contact import check_reachable, impatient_client
from pulsar_spark.client.layout_watch import LayoutWatch
from pulsar_spark.client.net.admin import Admin, Ledger, checked_admin_url, namespace_parts
from pulsar_spark.client.net.auth import Authentication, Credentials, Identity
from pulsar_spark.client.net.deadline import Deadline, epoch_ms, now
from pulsar_spark.client.net.page_server import HttpAnswer, PageServer
from pulsar_spark.client.net.places import path_of
from pulsar_spark.client.net.retry import retry_count
from pulsar_spark.client.net.tls import KeyStore, TlsOptions
from pulsar_spark.client.net.tls_suites import PROTOCOLS, has_suite
from pulsar_spark.client.parallel import prefetch, run_all
from pulsar_spark.client.pending_calls import PROMPT, PendingCalls
from pulsar_spark.client.reading.decode import decode_entries
from pulsar_spark.client.reading.decoded_messages import DecodedMessages
from pulsar_spark.client.reading.entry_range import position_before
from pulsar_spark.client.reading.message_range import read_ranges
from pulsar_spark.client.reading.planning_client import PlanningClient
from pulsar_spark.client.reading.probe import (
    EntryInfo,
    EntryProbe,
    PartitionBounds,
    first_at,
    ledger_end,
    probe_bounds,
    probe_entry,
)
from pulsar_spark.client.reading.stored_run import count_stored_run
from pulsar_spark.client.reading.tail import Arrivals, Tail
from pulsar_spark.client.reading.typed_values import ReaderSchema, TypedValueReader, TypedValues
from pulsar_spark.client.schemas import TopicSchemas, VersionedSchema
from pulsar_spark.client.topic_watch import TopicWatch
from pulsar_spark.client.writing.dedup import DedupTask, last_sequence_id
from pulsar_spark.client.writing.interceptors import ProducerInterceptor
from pulsar_spark.client.writing.producer import Producer, task_memory
from pulsar_spark.client.writing.producer_options import (
    COMPRESSION_TYPES,
    NO_USER_CODE,
    AccessMode,
    ProducerOptions,
    UserCode,
)
from pulsar_spark.client.writing.record_topic import RecordTopic, StoredRecord, append_record
from pulsar_spark.client.writing.row_schema import register_schema, row_encoder, schema_of_rows
from pulsar_spark.client.writing.topic_writer import TopicWriter
from pulsar_spark.client.writing.transactions import Transaction, Transactions
from pulsar_spark.protocol.layout import Segment, TopicLayout
from pulsar_spark.protocol.lookup import Address, parse_service_url
from pulsar_spark.protocol.pauses import Pauses
from pulsar_spark.protocol.reading.chunk_assembler import ChunkLimits
from pulsar_spark.protocol.reading.range_progress import LostRange
from pulsar_spark.protocol.replay.run_search import RunToFind
from pulsar_spark.protocol.replay.task_ids import first_sequence_id
from pulsar_spark.protocol.writing.batcher import BatcherBuilder
from pulsar_spark.protocol.writing.receipts import SentTotals
from pulsar_spark.protocol.writing.routing import HashingScheme, RoutingMode, TaskPlace
from pulsar_spark.protocol.writing.schema_choice import (
    KeyValueEncoding,
    PartKind,
    PartType,
    RowType,
    kind_of_values,
)
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.interfaces import EncodedValues, ValueEncoder
from pulsar_spark.values.protobuf.descriptor_file import protobuf_schema
from pulsar_spark.wire.columns.message_columns import MessageColumns
from pulsar_spark.wire.columns.message_ids import parse_message_id
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.entry.entries import Entries
from pulsar_spark.wire.entry.entry_fields import EntryField
from pulsar_spark.wire.entry.origin import Origin

__all__ = [
    "COMPRESSION_TYPES",
    "NO_USER_CODE",
    "PROMPT",
    "PROTOCOLS",
    "AccessMode",
    "Address",
    "Admin",
    "Arrivals",
    "Authentication",
    "BatcherBuilder",
    "ChunkLimits",
    "Client",
    "ClientOptions",
    "Closing",
    "Consumer",
    "ConsumerCryptoFailureAction",
    "Credentials",
    "CryptoKeyReader",
    "Deadline",
    "DecodedMessages",
    "Decryptor",
    "DedupTask",
    "EncodedValues",
    "EncryptionKeyInfo",
    "Encryptor",
    "Entries",
    "EntryField",
    "EntryInfo",
    "EntryProbe",
    "HashingScheme",
    "HttpAnswer",
    "Identity",
    "InitialPosition",
    "KeyFolder",
    "KeyStore",
    "KeyValueEncoding",
    "LastMessageId",
    "LayoutWatch",
    "Ledger",
    "LostRange",
    "MessageColumns",
    "Origin",
    "PageServer",
    "PartKind",
    "PartType",
    "PartitionBounds",
    "Pauses",
    "PendingCalls",
    "PlanningClient",
    "Producer",
    "ProducerCryptoFailureAction",
    "ProducerInterceptor",
    "ProducerOptions",
    "ReaderSchema",
    "RecordTopic",
    "RoutingMode",
    "RowType",
    "RunToFind",
    "Schema",
    "SchemaType",
    "Segment",
    "SentTotals",
    "StoredRecord",
    "SubscriptionOptions",
    "Tail",
    "TaskPlace",
    "TlsOptions",
    "TopicEnd",
    "TopicLayout",
    "TopicSchemas",
    "TopicWatch",
    "TopicWriter",
    "Transaction",
    "Transactions",
    "TypedValueReader",
    "TypedValues",
    "UserCode",
    "ValueEncoder",
    "VersionedSchema",
    "append_record",
    "check_identity",
    "check_reachable",
    "checked_admin_url",
    "close_consumers",
    "count_stored_run",
    "decode_entries",
    "epoch_ms",
    "first_at",
    "first_sequence_id",
    "has_suite",
    "impatient_client",
    "kind_of_values",
    "last_sequence_id",
    "ledger_end",
    "namespace_parts",
    "now",
    "parse_message_id",
    "parse_service_url",
    "parts_by_size",
    "path_of",
    "position_before",
    "prefetch",
    "probe_bounds",
    "probe_entry",
    "protobuf_schema",
    "read_ranges",
    "register_schema",
    "retry_count",
    "row_encoder",
    "run_all",
    "schema_of_rows",
    "shared_client",
    "task_memory",
]
