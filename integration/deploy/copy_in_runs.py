"""A user's script that copies a topic in a stream, over runs that may be killed; it needs only the package.

copy_in_runs.py SERVICE_URL TOPIC COPY FOLDER TRIGGER OPTION=VALUE...

An option of the sink begins with ``sink.``. With TRIGGER ``available-now`` it ends when all is copied; with
``default`` also, once there is a file FOLDER/stop.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import pulsar_spark


def main(service_url: str, topic: str, copy: str, folder: Path, trigger: str, *options: str) -> None:
    spark = SparkSession.builder.appName("copy").getOrCreate()
    pulsar_spark.register(spark)
    given = dict(each.split("=", 1) for each in options)
    sink = {name.removeprefix("sink."): text for name, text in given.items() if name.startswith("sink.")}
    source = {name: text for name, text in given.items() if not name.startswith("sink.")}
    source |= {"service.url": service_url, "topic": topic, "startingOffsets": "earliest"}
    sink |= {"service.url": service_url, "topic": copy, "checkpointLocation": str(folder / "checkpoint")}
    rows = spark.readStream.format("pulsar").options(**source).load().drop("__topic")
    writer = rows.writeStream.format("pulsar").options(**sink)
    if trigger == "available-now":
        # On Spark 4.0 and 4.1 the first run after a crash only finishes its micro-batch.
        for _ in range(2):
            writer.trigger(availableNow=True).start().awaitTermination()
    else:
        query = writer.start()
        while not (folder / "stop").exists():
            query.awaitTermination(1)  # raises its error
        query.processAllAvailable()
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), *sys.argv[5:])
