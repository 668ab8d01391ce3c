"""The topics that the process that commits leaves for the one that listens."""

from pulsar_spark.spark.monitoring import driver_files
from pulsar_spark.spark.monitoring.driver_files import MAX_TOPICS, add_sink_topics, read_sink_topics

QUERY = "53a07399-9325-45aa-b130-8ae28c14255c"
URL, OTHER_URL = "pulsar://one:6650", "pulsar://two:6650"


def test_what_is_added_is_read(folder):
    assert read_sink_topics(QUERY) == frozenset()
    add_sink_topics(QUERY, URL, [])
    assert list(folder.iterdir()) == []
    add_sink_topics(QUERY, URL, {"a", "b"})
    add_sink_topics("another", URL, {"z"})
    add_sink_topics(QUERY, URL, {"b", "c"})
    add_sink_topics(QUERY, OTHER_URL, {"a"})
    assert read_sink_topics(QUERY) == {(URL, "a"), (URL, "b"), (URL, "c"), (OTHER_URL, "a")}


def test_a_file_is_written_for_a_new_topic_only(folder, monkeypatch):
    add_sink_topics(QUERY, URL, {"a"})
    monkeypatch.setattr(driver_files._topics, "write", None)
    add_sink_topics(QUERY, URL, {"a"})
    assert read_sink_topics(QUERY) == {(URL, "a")}


def test_topics_that_rows_name_have_a_bound(folder, caplog):
    add_sink_topics(QUERY, OTHER_URL, {"t"})
    for number in range(MAX_TOPICS + 10):
        add_sink_topics(QUERY, URL, {f"t{number}"})
    add_sink_topics(QUERY, "pulsar://three:6650", {f"t{number}" for number in range(10)})
    assert len(read_sink_topics(QUERY)) == MAX_TOPICS
    assert caplog.messages == [f"query {QUERY}: listeners see only {MAX_TOPICS} topics of the sink"]


def test_where_spark_does_not_run(no_spark, caplog):
    assert read_sink_topics(QUERY) == frozenset()
    add_sink_topics(QUERY, URL, {"a"})
    assert f"query {QUERY}: listeners do not see the sink's topics" in caplog.text


def test_what_cannot_be_read_counts_for_nothing(folder, caplog):
    add_sink_topics(QUERY, URL, {"a"})
    (folder / "pulsar_spark_sink_topics" / QUERY).write_text("no json")
    assert read_sink_topics(QUERY) == frozenset()
    add_sink_topics(QUERY, URL, {"a"})
    assert "do not see the sink's topics" in caplog.text
