"""A blocking client of one Pulsar cluster, with its sockets, threads and timeouts.

Internal: only the packages spark, cli and integration import from here, and names change without notice.
Users import from :mod:`pulsar_spark`.
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
    from pulsar_spark.client.closing import Closing, close_all
    from pulsar_spark.client.consuming.consumer import Consumer, close_consumers
    from pulsar_spark.client.consuming.consumer_link import LastMessageId, SubscriptionOptions
    from pulsar_spark.client.consuming.inbox import TopicEnd
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
    from pulsar_spark.client.net.deadline import Deadline, epoch_ms, now, retry, retry_count
    from pulsar_spark.client.net.file_or_env import path_of
    from pulsar_spark.client.net.page_server import HttpAnswer, PageServer
    from pulsar_spark.client.net.tls import PROTOCOLS, KeyStore, TlsOptions, has_suite
    from pulsar_spark.client.parallel import IN_PARALLEL, prefetch, raise_error_of, run_all
    from pulsar_spark.client.pending_calls import PROMPT, Calls, Kind, PendingCalls
    from pulsar_spark.client.reading.decode import RangeEntries, decode_entries
    from pulsar_spark.client.reading.decoded_messages import DecodedMessages
    from pulsar_spark.client.reading.message_range import read_ranges
    from pulsar_spark.client.reading.planning_client import PlanningClient
    from pulsar_spark.client.reading.probe import Arrivals, EntryInfo, EntryProbe, PartitionBounds, Tail
    from pulsar_spark.client.reading.stored_run import find_stored_batch
    from pulsar_spark.client.reading.typed_values import (
        OPAQUE_TYPES,
        ReaderSchema,
        TypedValueReader,
        TypedValues,
        schema_like,
    )
    from pulsar_spark.client.schemas import VersionedSchema
    from pulsar_spark.client.watches import ScalableTopicWatch, SegmentWatch, TopicWatch
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
    from pulsar_spark.client.writing.segment_writer import SegmentWriter
    from pulsar_spark.client.writing.topic_writer import TopicWriter
    from pulsar_spark.client.writing.transactions import Transaction, Transactions
    from pulsar_spark.protocol.lookup import Address, parse_service_url
    from pulsar_spark.protocol.reading.chunk_assembler import ChunkLimits
    from pulsar_spark.protocol.reading.copies import (
        Copied,
        CopiedPartition,
        CopyRange,
        Source,
        StoredEntry,
        Witness,
        position_of,
    )
    from pulsar_spark.protocol.reading.range_progress import LostRange, Range
    from pulsar_spark.protocol.replay.duplicates import possible_duplicates
    from pulsar_spark.protocol.replay.task_ids import first_sequence_id
    from pulsar_spark.protocol.segments import Segment, TopicLayout
    from pulsar_spark.protocol.writing.batcher import BatcherBuilder
    from pulsar_spark.protocol.writing.partition_writer import SentTotals
    from pulsar_spark.protocol.writing.routing import HashingScheme, RoutingMode, TaskPlace
    from pulsar_spark.protocol.writing.schema_choice import (
        KeyValueEncoding,
        PartKind,
        PartType,
        RowType,
        kind_of_values,
    )
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
else:  # Each of a query's processes imports only the modules that it uses.
    __getattr__ = lazy_imports(__name__)
