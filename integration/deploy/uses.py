"""A user's script that uses the package in all ways but a plain copy; it needs only the package.

uses.py SERVICE_URL TOPIC FOLDER

It raises an error where rows differ. The broker must have transactions. Its last line is JSON, as app.py's.
"""

import json
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import pulsar_spark

ROWS = [(number, f"item {number}") for number in range(100)]


def main(service_url: str, topic: str, folder: str) -> None:
    spark = SparkSession.builder.appName("uses").getOrCreate()
    pulsar_spark.register(spark)
    place = {"service.url": service_url}

    def read(name: str, **options: str) -> DataFrame:
        return spark.read.format("pulsar").options(**place, topic=name, **options).load()

    def stream(name: str, **options: str) -> DataFrame:
        # Spark 4.0 and 4.1 need a name for the subscription.
        subscription = {"predefinedSubscription": f"uses-{len(used)}", "startingOffsets": "earliest"}
        return (
            spark.readStream.format("pulsar").options(**place, topic=name, **subscription, **options).load()
        )

    def run(writer: DataStreamWriter, use: str) -> None:
        writer = writer.option("checkpointLocation", f"{folder}/{use}").trigger(availableNow=True)
        writer.start().awaitTermination()
        used.append(use)

    used: list[str] = []
    typed, columns = f"{topic}-typed", {"valueFormat": "columns", "metadataColumns": ""}
    rows = spark.createDataFrame(ROWS, "id long, item string")
    rows.write.format("pulsar").options(**place, topic=typed, valueFormat="columns").mode("append").save()
    check(read(typed, **columns), ROWS)
    check(read(typed, **columns).where("id < 5").select("item"), [row[1:] for row in ROWS[:5]])
    used.append("typed")

    table = "typed_" + "".join(each for each in topic if each.isalnum())
    options = f"'service.url' '{service_url}', topic '{typed}', valueFormat 'columns', metadataColumns ''"
    spark.sql(f"CREATE TABLE {table} USING pulsar OPTIONS ({options})")
    copied = f"'service.url' = '{service_url}', topic = '{topic}-sql', valueFormat = 'columns'"
    spark.sql(f"INSERT INTO {table} WITH ({copied}) SELECT id, item FROM {table}")
    spark.sql(f"DROP TABLE {table}")
    check(read(f"{topic}-sql", **columns), ROWS)
    used.append("sql")

    def write(batch: DataFrame, _: int) -> None:
        sink = {**place, "topic": f"{topic}-each", "valueFormat": "columns"}
        batch.write.format("pulsar").options(**sink).mode("append").save()

    run(stream(typed, **columns).writeStream.foreachBatch(write), "foreachBatch")
    check(read(f"{topic}-each", **columns), ROWS)

    sink = {**place, "topic": f"{topic}-txn", "valueFormat": "columns", "delivery": "transactional"}
    run(stream(typed, **columns).writeStream.format("pulsar").options(**sink), "transactional")
    check(read(f"{topic}-txn", **columns), ROWS)

    counts = stream(typed, **columns).selectExpr("CAST(id % 2 AS STRING) AS __key").groupBy("__key").count()
    sink = {**place, "topic": f"{topic}-counts"}
    messages = counts.selectExpr("__key", "CAST(count AS STRING) AS value")
    run(messages.writeStream.format("pulsar").options(**sink).outputMode("complete"), "stateful")
    found = read(f"{topic}-counts").selectExpr("CAST(__key AS STRING)", "CAST(value AS STRING)")
    check(found, [("0", "50"), ("1", "50")])
    print(json.dumps(used))
    spark.stop()


def check(rows: DataFrame, expected: Sequence[tuple[object, ...]]) -> None:
    found = sorted(tuple(row) for row in rows.collect())
    if found != sorted(expected):
        raise AssertionError(f"{len(found)} rows, not {len(expected)}: {found[:3]} ...")


if __name__ == "__main__":
    main(*sys.argv[1:])
