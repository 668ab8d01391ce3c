"""Sockets, threads and time: a blocking client of one Pulsar cluster.

Internal: these names are for spark, cli and integration, and change without notice; users import from
:mod:`pulsar_spark`.
"""

from typing import TYPE_CHECKING

from pulsar_spark.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from pulsar_spark.arrow.arrays import parts_by_size
    from pulsar_spark.client.client import (
        Client,
        ClientOptions,
        check_reachable,
        impatient_client,
        shared_client,
    )
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
    from pulsar_spark.client.login_checks import check_identity, login_risk, variables_of_secrets
    from pulsar_spark.client.net.admin import (
        Admin,
        Ledger,
        SubscriptionStats,
        checked_admin_url,
        namespace_parts,
    )
    from pulsar_spark.client.net.auth import Authentication, Credentials, Identity
    from pulsar_spark.client.net.deadline import Deadline, epoch_ms, now
    from pulsar_spark.client.net.file_or_env import path_of
    from pulsar_spark.client.net.page_server import HttpAnswer, PageServer
    from pulsar_spark.client.net.retry import retry, retry_count
    from pulsar_spark.client.net.tls import PROTOCOLS, KeyStore, TlsOptions, has_suite
    from pulsar_spark.client.parallel import IN_PARALLEL, prefetch, raise_error_of, run_all
    from pulsar_spark.client.pending_calls import PROMPT, Calls, Kind, PendingCalls
    from pulsar_spark.client.reading.decode import decode_entries
    from pulsar_spark.client.reading.decoded_messages import DecodedMessages
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
    from pulsar_spark.client.reading.stored_run import find_stored_batch
    from pulsar_spark.client.reading.tail import Arrivals, Tail
    from pulsar_spark.client.reading.typed_values import (
        OPAQUE_TYPES,
        ReaderSchema,
        TypedValueReader,
        TypedValues,
        schema_like,
    )
    from pulsar_spark.client.schemas import VersionedSchema
    from pulsar_spark.client.segment_watch import SegmentWatch
    from pulsar_spark.client.topic_watch import TopicWatch
    from pulsar_spark.client.writing.dedup import DedupTask, Replay, last_sequence_id
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
    from pulsar_spark.protocol.lookup import Address, parse_service_url
    from pulsar_spark.protocol.reading.chunk_assembler import ChunkLimits
    from pulsar_spark.protocol.reading.range_progress import LostRange
    from pulsar_spark.protocol.reading.translation import Copied, CopiedPartition, CopyRange
    from pulsar_spark.protocol.reading.witness import Source, StoredEntry, Witness, WitnessVerdict
    from pulsar_spark.protocol.replay.duplicates import possible_duplicates
    from pulsar_spark.protocol.replay.task_ids import first_sequence_id
    from pulsar_spark.protocol.segments import Segment, TopicLayout
    from pulsar_spark.protocol.writing.batcher import BatcherBuilder
    from pulsar_spark.protocol.writing.routing import HashingScheme, RoutingMode, TaskPlace
    from pulsar_spark.protocol.writing.schema_choice import (
        KeyValueEncoding,
        PartKind,
        PartType,
        RowType,
        kind_of_values,
    )
    from pulsar_spark.protocol.writing.sent_totals import SentTotals
    from pulsar_spark.schema import Schema, SchemaType
    from pulsar_spark.values.interfaces import ValueEncoder
    from pulsar_spark.values.protobuf.definition import protobuf_schema
    from pulsar_spark.values.value_bounds import WorkPool
    from pulsar_spark.wire.columns.message_columns import MessageColumns
    from pulsar_spark.wire.columns.message_ids import parse_message_id
    from pulsar_spark.wire.commands import InitialPosition
    from pulsar_spark.wire.entry.entries import Entries
    from pulsar_spark.wire.entry.entry_fields import EntryField
    from pulsar_spark.wire.entry.origin import Origin
else:  # The same exports at run time. Each of a query's processes imports only the modules that it uses.
    __getattr__ = lazy_imports(
        __name__,
        {
            "pulsar_spark.arrow.arrays": "parts_by_size",
            "pulsar_spark.client.client": (
                "Client ClientOptions check_reachable impatient_client shared_client"
            ),
            "pulsar_spark.client.closing": "Closing",
            "pulsar_spark.client.consuming.consumer": "Consumer close_consumers",
            "pulsar_spark.client.consuming.inbox": "TopicEnd",
            "pulsar_spark.client.consuming.subscription_options": "LastMessageId SubscriptionOptions",
            "pulsar_spark.client.encryption": (
                "ConsumerCryptoFailureAction CryptoKeyReader Decryptor EncryptionKeyInfo "
                "Encryptor KeyFolder ProducerCryptoFailureAction"
            ),
            "pulsar_spark.client.login_checks": "check_identity login_risk variables_of_secrets",
            "pulsar_spark.client.net.admin": (
                "Admin Ledger SubscriptionStats checked_admin_url namespace_parts"
            ),
            "pulsar_spark.client.net.auth": "Authentication Credentials Identity",
            "pulsar_spark.client.net.deadline": "Deadline epoch_ms now",
            "pulsar_spark.client.net.file_or_env": "path_of",
            "pulsar_spark.client.net.page_server": "HttpAnswer PageServer",
            "pulsar_spark.client.net.retry": "retry retry_count",
            "pulsar_spark.client.net.tls": "PROTOCOLS KeyStore TlsOptions has_suite",
            "pulsar_spark.client.parallel": "IN_PARALLEL prefetch raise_error_of run_all",
            "pulsar_spark.client.pending_calls": "PROMPT Calls Kind PendingCalls",
            "pulsar_spark.client.reading.decode": "decode_entries",
            "pulsar_spark.client.reading.decoded_messages": "DecodedMessages",
            "pulsar_spark.client.reading.message_range": "read_ranges",
            "pulsar_spark.client.reading.planning_client": "PlanningClient",
            "pulsar_spark.client.reading.probe": (
                "EntryInfo EntryProbe PartitionBounds first_at ledger_end probe_bounds probe_entry"
            ),
            "pulsar_spark.client.reading.stored_run": "find_stored_batch",
            "pulsar_spark.client.reading.tail": "Arrivals Tail",
            "pulsar_spark.client.reading.typed_values": (
                "OPAQUE_TYPES ReaderSchema TypedValueReader TypedValues schema_like"
            ),
            "pulsar_spark.client.schemas": "VersionedSchema",
            "pulsar_spark.client.segment_watch": "SegmentWatch",
            "pulsar_spark.client.topic_watch": "TopicWatch",
            "pulsar_spark.client.writing.dedup": "DedupTask Replay last_sequence_id",
            "pulsar_spark.client.writing.interceptors": "ProducerInterceptor",
            "pulsar_spark.client.writing.producer": "Producer task_memory",
            "pulsar_spark.client.writing.producer_options": (
                "COMPRESSION_TYPES NO_USER_CODE AccessMode ProducerOptions UserCode"
            ),
            "pulsar_spark.client.writing.record_topic": "RecordTopic StoredRecord append_record",
            "pulsar_spark.client.writing.row_schema": "register_schema row_encoder schema_of_rows",
            "pulsar_spark.client.writing.topic_writer": "TopicWriter",
            "pulsar_spark.client.writing.transactions": "Transaction Transactions",
            "pulsar_spark.protocol.segments": "Segment TopicLayout",
            "pulsar_spark.protocol.lookup": "Address parse_service_url",
            "pulsar_spark.protocol.reading.chunk_assembler": "ChunkLimits",
            "pulsar_spark.protocol.reading.range_progress": "LostRange",
            "pulsar_spark.protocol.reading.translation": "Copied CopiedPartition CopyRange",
            "pulsar_spark.protocol.reading.witness": "Source StoredEntry Witness WitnessVerdict",
            "pulsar_spark.protocol.replay.duplicates": "possible_duplicates",
            "pulsar_spark.protocol.replay.task_ids": "first_sequence_id",
            "pulsar_spark.protocol.writing.batcher": "BatcherBuilder",
            "pulsar_spark.protocol.writing.sent_totals": "SentTotals",
            "pulsar_spark.protocol.writing.routing": "HashingScheme RoutingMode TaskPlace",
            "pulsar_spark.protocol.writing.schema_choice": (
                "KeyValueEncoding PartKind PartType RowType kind_of_values"
            ),
            "pulsar_spark.schema": "Schema SchemaType",
            "pulsar_spark.values.interfaces": "ValueEncoder",
            "pulsar_spark.values.protobuf.definition": "protobuf_schema",
            "pulsar_spark.values.value_bounds": "WorkPool",
            "pulsar_spark.wire.columns.message_columns": "MessageColumns",
            "pulsar_spark.wire.columns.message_ids": "parse_message_id",
            "pulsar_spark.wire.commands": "InitialPosition",
            "pulsar_spark.wire.entry.entries": "Entries",
            "pulsar_spark.wire.entry.entry_fields": "EntryField",
            "pulsar_spark.wire.entry.origin": "Origin",
        },
    )
