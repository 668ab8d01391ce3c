"""Scores JSON payments with a model, and writes each score under its payment's key; and the mean by customer.

spark-submit examples/score.py pulsar://localhost:6650 payments scores means
"""

import sys
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

MESSAGE = "__key binary, value string"


def score(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Score all payments of a task: the model is loaded once, here where it runs."""
    model = {"ann": 0.5}  # in place of joblib.load(...)
    for batch in batches:
        risk = batch["customer"].map(model).fillna(1.0) * batch["amount"]
        yield batch[["__key"]].assign(value=risk.map("{:.2f}".format))


def mean(key: tuple[bytes], payments: pd.DataFrame) -> pd.DataFrame:
    """All payments of one key, which must fit into memory: here a model for each key could be trained."""
    return pd.DataFrame({"__key": [key[0]], "value": [f"{payments['amount'].mean():.2f}"]})


def payments(spark: SparkSession, service_url: str, topic: str) -> DataFrame:
    """A batch; ``mapInPandas`` works in the same way on ``readStream``."""
    reader = spark.read.format("pulsar").option("service.url", service_url).option("topic", topic)
    value = f.from_json(f.col("value").cast("string"), "customer string, amount double")
    return reader.load().select("__key", value.alias("payment")).select("__key", "payment.*")


def write(messages: DataFrame, service_url: str, topic: str) -> None:
    """Write a batch of messages."""
    writer = messages.write.format("pulsar").option("service.url", service_url).option("topic", topic)
    writer.mode("append").save()


def main(spark: SparkSession, service_url: str, source: str, scores: str, means: str) -> None:
    """Read once for each of the two."""
    rows = payments(spark, service_url, source)
    write(rows.mapInPandas(score, MESSAGE), service_url, scores)
    write(rows.groupBy("__key").applyInPandas(mean, MESSAGE), service_url, means)


if __name__ == "__main__":
    main(SparkSession.builder.appName("score").getOrCreate(), *sys.argv[1:])
