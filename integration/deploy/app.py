"""A user's script, the same for every way to deploy it; it needs nothing of this project but the package.

app.py SERVICE_URL TOPIC CHECKPOINT

It copies TOPIC to TOPIC-batch in a batch and to TOPIC-stream in a stream, and prints as its last line, as
JSON, where the driver and an executor have the libraries from.
"""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import pulsar_spark


def main(service_url: str, topic: str, checkpoint: str) -> None:
    spark = SparkSession.builder.appName("deployed").getOrCreate()
    pulsar_spark.register(spark)
    # The broker of this test asks for no login: the token only must not be shown.
    login = {"authPluginClassName": "token", "authParams": "token:shown-nowhere"}
    place = {"service.url": service_url, **{f"pulsar.client.{name}": text for name, text in login.items()}}
    options = {**place, "startingOffsets": "earliest"}

    rows = spark.read.format("pulsar").options(**options, topic=topic).load().drop("__topic")
    target = {**place, "topic": f"{topic}-batch"}
    rows.write.format("pulsar").options(**target).mode("append").save()

    # Spark 4.0 and 4.1 need a name for the subscription.
    options["predefinedSubscription"] = "deployed"
    rows = spark.readStream.format("pulsar").options(**options, topic=topic).load().drop("__topic")
    target = {**place, "topic": f"{topic}-stream", "checkpointLocation": checkpoint}
    query = rows.writeStream.format("pulsar").options(**target).trigger(availableNow=True).start()
    query.awaitTermination()

    (row,) = spark.range(1).coalesce(1).mapInArrow(_origins_there, "origins string").collect()
    print(json.dumps({"driver": _origins(), "executor": json.loads(row.origins)}))
    spark.stop()


def _origins_there(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"origins": [json.dumps(_origins())]})


def _origins() -> dict[str, str]:
    importlib.import_module("pulsar_spark")
    names = ("pulsar_spark", "google.protobuf", "crc32c")
    return {name: sys.modules[name].__file__ or "" for name in names if name in sys.modules} | {
        "python": sys.executable,
        "folder": str(Path.cwd()),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
