"""The benchmark beside Kafka: its broker's settings, and how runs that take turns are compared."""

from pathlib import Path

from integration.bench.measure import Cost
from integration.bench.turns import in_turns, lines
from integration.helpers import kafka_broker
from pulsar_spark_broker import jars


def test_the_node_listens_on_loopback_only():
    text = kafka_broker.server_properties(1111, 2222, Path("/data"))
    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1111,CONTROLLER://127.0.0.1:2222"
    assert settings["controller.quorum.voters"] == f"{settings['node.id']}@127.0.0.1:2222"
    assert settings["log.dirs"] == "/data"


def test_all_jars_have_sums_and_pyspark_brings_the_others():
    server, spark = (jars._read_sums(kafka_broker._CONF / f"{name}.sha256") for name in ("server", "spark"))
    assert any("/kafka_2.13-" in name for name in server)
    assert any("/spark-sql-kafka-0-10_2.13-" in name for name in spark)
    assert not any("scala-library" in name for name in spark)
    assert all(len(digest) == 64 for sums in (server, spark) for digest in sums.values())


def test_a_round_runs_all_and_the_first_does_not_count():
    order = []

    def run(name):
        order.append(name)
        return Cost(len(order), 1)

    costs = in_turns({"a": lambda: run("a"), "b": lambda: run("b")}, 2)
    assert order == ["a", "b"] * 3
    assert [cost.seconds for cost in costs["a"]] == [3, 5]
    assert [cost.seconds for cost in costs["b"]] == [4, 6]


def test_ratios_are_medians_of_those_of_each_round():
    first = [Cost(1, 2), Cost(2, 2), Cost(30, 2)]
    other = [Cost(2, 1), Cost(1, 1), Cost(10, 1)]
    of_itself, line = lines({"kafka": first, "pulsar": other}, 1_000)
    assert " ".join(of_itself.split()) == "kafka 500 rows/s 2000.00 us CPU a row; of kafka 1.00, by CPU 1.00"
    # The ratios are 0.5, 2 and 3; that of the medians would be 1.
    assert " ".join(line.split()) == "pulsar 500 rows/s 1000.00 us CPU a row; of kafka 2.00, by CPU 2.00"
