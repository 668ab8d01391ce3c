"""Apache Pulsar source and sink for PySpark Structured Streaming, in pure Python.

Users' programs import from here only; all modules below are internal. ``register(spark)`` registers
``format("pulsar")`` if Spark does not find it itself; ``PulsarProgressListener`` logs the lag of queries, and
``PulsarLineageListener`` reports their topics to OpenLineage. ``ProducerInterceptor``, ``CryptoKeyReader``
and ``Authentication`` are the interfaces of users' classes that options name.
"""

from typing import TYPE_CHECKING

import pulsar_spark.libraries  # noqa: F401 - first, because it adds the jar's libraries to the path
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
    OtherClusterError,
    ProtocolError,
    PulsarError,
    QueueFullError,
    QuotaError,
    SchemaChangedError,
    SchemaError,
    SendError,
    SubscriptionLimitError,
    TerminatedError,
    TlsError,
    TopicEndedError,
    TopicMigratedError,
    TopicNotFoundError,
    TransactionError,
    UnsupportedError,
)
from pulsar_spark.ids import MessageId
from pulsar_spark.lazy_imports import lazy_imports
from pulsar_spark.version import VERSION

if TYPE_CHECKING:
    from pulsar_spark.client import (
        Authentication,
        CryptoKeyReader,
        EncryptionKeyInfo,
        MessageColumns,
        ProducerInterceptor,
    )
    from pulsar_spark.spark.data_source import register
    from pulsar_spark.spark.lineage_listener import PulsarLineageListener
    from pulsar_spark.spark.progress_listener import PulsarProgressListener
    from pulsar_spark.spark.sink.report import TopicPartitionMetrics
else:  # Modules outside of spark/ can be used without pyspark.
    __getattr__ = lazy_imports(__name__)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


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
    "OtherClusterError",
    "ProducerInterceptor",
    "ProtocolError",
    "PulsarError",
    "PulsarLineageListener",
    "PulsarProgressListener",
    "QueueFullError",
    "QuotaError",
    "SchemaChangedError",
    "SchemaError",
    "SendError",
    "SubscriptionLimitError",
    "TerminatedError",
    "TlsError",
    "TopicEndedError",
    "TopicMigratedError",
    "TopicNotFoundError",
    "TopicPartitionMetrics",
    "TransactionError",
    "UnsupportedError",
    "__version__",
    "register",
]
