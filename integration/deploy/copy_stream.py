"""A user's script that runs for long: two streams of one topic, into files of the driver and into a topic.

copy_stream.py SERVICE_URL TOPIC COPY FOLDER

Each micro-batch of the first becomes FOLDER/out/NUMBER.json, written again where it is run again. Once there
is a file FOLDER/stop both go on to the end of what is there, and the script ends.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import pulsar_spark


def main(service_url: str, topic: str, copy: str, folder: Path) -> None:
    spark = SparkSession.builder.appName("copy").getOrCreate()
    pulsar_spark.register(spark)
    out = folder / "out"
    out.mkdir(exist_ok=True)

    def write(batch: DataFrame, number: int) -> None:
        rows = [(row["__topic"], int(bytes(row.value))) for row in batch.select("__topic", "value").collect()]
        (out / f"{number}.tmp").write_text(json.dumps(rows))
        (out / f"{number}.tmp").replace(out / f"{number}.json")

    source = {"service.url": service_url, "topic": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("pulsar").options(**source).load()
    sink = {"service.url": service_url, "topic": copy}
    writers = {
        "files": rows.writeStream.foreachBatch(write),
        "topic": rows.drop("__topic").writeStream.format("pulsar").options(**sink),
    }
    queries = []
    for name, writer in writers.items():
        checkpoint = str(folder / f"checkpoint-{name}")
        queries.append(writer.option("checkpointLocation", checkpoint).queryName(name).start())
    while not (folder / "stop").exists():
        for query in queries:
            query.awaitTermination(1)  # raises its error
    for query in queries:
        query.processAllAvailable()
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
