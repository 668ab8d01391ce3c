"""Apache Pulsar source and sink for PySpark Structured Streaming, in pure Python.

Users' programs import from here only; all modules below are internal. ``register(spark)`` makes
``format("pulsar")`` known where Spark does not find it itself; ``PulsarProgressListener`` logs how far
queries lag, and ``PulsarLineageListener`` reports their topics to OpenLineage; ``ProducerInterceptor``,
``CryptoKeyReader`` and ``Authentication`` describe the classes that options name.
"""

import sys

import pulsar_spark.libraries  # noqa: F401 - before all else: it lets the others be imported
from pulsar_spark.client import (
    Authentication,
    CryptoKeyReader,
    EncryptionKeyInfo,
    MessageColumns,
    ProducerInterceptor,
)
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    BusyError,
    ClosedError,
    ConnectError,
    CorruptError,
    CryptoError,
    DataLossError,
    DeadlineError,
    DuplicatesError,
    LibraryError,
    NotAllowedError,
    NotReadyError,
    OptionError,
    ProtocolError,
    PulsarError,
    QueueFullError,
    QuotaError,
    SchemaChangedError,
    SchemaError,
    SendError,
    SubscriptionLimitError,
    TlsError,
    TopicEndedError,
    TopicMigratedError,
    TopicNotFoundError,
    TransactionError,
    UnsupportedError,
)
from pulsar_spark.ids import MessageId
from pulsar_spark.version import VERSION

try:
    from pulsar_spark.spark.data_source import register
    from pulsar_spark.spark.lineage_listener import PulsarLineageListener
    from pulsar_spark.spark.progress_listener import PulsarProgressListener
    from pulsar_spark.spark.reused_worker import prepare_worker as _prepare_worker
    from pulsar_spark.spark.sink.report import TopicPartitionMetrics
except ImportError as _error:
    # The layers under spark/ can be used, and are tested, where there is no pyspark.
    if (_error.name or "").partition(".")[0] != "pyspark":
        raise
    if sys.modules.get("pyspark") is not None:
        raise LibraryError(f"this pyspark is too old: pulsar_spark needs 4.2 or newer ({_error})") from _error
    _has_spark = False
else:
    _has_spark = True
    _prepare_worker()

__version__ = VERSION

__all__ = [
    "AuthError",
    "Authentication",
    "BrokerError",
    "BusyError",
    "ClosedError",
    "ConnectError",
    "CorruptError",
    "CryptoError",
    "CryptoKeyReader",
    "DataLossError",
    "DeadlineError",
    "DuplicatesError",
    "EncryptionKeyInfo",
    "LibraryError",
    "MessageColumns",
    "MessageId",
    "NotAllowedError",
    "NotReadyError",
    "OptionError",
    "ProducerInterceptor",
    "ProtocolError",
    "PulsarError",
    "QueueFullError",
    "QuotaError",
    "SchemaChangedError",
    "SchemaError",
    "SendError",
    "SubscriptionLimitError",
    "TlsError",
    "TopicEndedError",
    "TopicMigratedError",
    "TopicNotFoundError",
    "TransactionError",
    "UnsupportedError",
    "__version__",
]
if _has_spark:
    __all__ += ["PulsarLineageListener", "PulsarProgressListener", "TopicPartitionMetrics", "register"]
