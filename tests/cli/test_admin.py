"""The command ``admin``: which request each action sends, and what it prints."""

import json

import pytest

from pulsar_spark.cli import main
from pulsar_spark.client.net.http import MAX_ANSWER
from pulsar_spark.ids import TopicName
from tests.fake_admin import FakeSubscription

TOPIC = TopicName.parse("t")
AT = "persistent/public/default/t"
NAMESPACE = "namespaces/public/default"


@pytest.fixture
def run(admin, capsys):
    """Run the command; gives what it printed."""

    def run(*arguments, code=0):
        assert main(["admin", *arguments, "--admin-url", admin.url]) == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    return run


def last(admin):
    method, path, _ = admin.requests[-1]
    return method, path.removeprefix("/admin/v2/")


def test_trusted_authorities_without_tls_are_refused(admin, capsys):
    with pytest.raises(SystemExit) as ended:
        main(
            [
                *("admin", "topics", "public/default", "--admin-url", admin.url),
                *("--tls-trust-cert-path", "/ca.pem"),
            ]
        )
    assert ended.value.code == 2
    assert "Begin the URL with https://" in capsys.readouterr().err
    assert admin.requests == []


def test_what_is_shown(admin, run):
    admin.topics[TOPIC] = {"mine": FakeSubscription(7)}
    for arguments, path, answer in (
        (("partitions", "t"), f"{AT}/partitions", {"partitions": 3}),
        (("stats", "t"), f"{AT}/partitioned-stats?perPartition=false", {"msgInCounter": 5}),
        (("stats", "t", "--partitions"), f"{AT}/partitioned-stats?perPartition=true", {"partitions": {}}),
        (("schemas", "t-partition-1"), "schemas/public/default/t/schemas", {"getSchemaResponses": []}),
        (("stats-internal", "t"), f"{AT}/partitioned-internalStats", {"ledgers": []}),
        (("retention", "public/default"), f"{NAMESPACE}/retention", {"retentionSizeInMB": 1}),
        (("deduplication", "public/default"), f"{NAMESPACE}/deduplication", True),
        (("policy", "public/default", "messageTTL"), f"{NAMESPACE}/messageTTL", 60),
    ):
        admin.others["GET", path] = answer
        shown = 3 if arguments[0] == "partitions" else answer
        assert json.loads(run(*arguments)) == shown
        assert last(admin) == ("GET", path)
    admin.others["GET", f"{AT}/partitions"] = {"partitions": 0}
    assert json.loads(run("stats", "t"))["subscriptions"]["mine"]["msgBacklog"] == 7
    assert json.loads(run("topics", "public/default")) == [str(TOPIC)]
    admin.others["GET", f"{NAMESPACE}/messageTTL"] = None
    assert run("policy", "public/default", "messageTTL").startswith("not set")
    assert json.loads(run("subscriptions", "t")) == ["mine"]
    assert admin.bodies == []


def test_a_schema_is_registered(admin, run, tmp_path):
    path, request = tmp_path / "order.avsc", ("POST", "schemas/public/default/t/schema")
    with pytest.raises(SystemExit):
        run("schemas", "t", "--register", str(path))
    path.write_text('"int"')
    admin.others[request] = None
    assert run("schemas", "t", "--register", str(path), "--type", "JSON") == "done\n"
    assert last(admin) == request
    assert admin.bodies[-1] == {"type": "JSON", "schema": '"int"', "properties": {}}


def test_what_is_changed(admin, run):
    admin.others["GET", f"{AT}/partitions"] = {"partitions": 3}
    for arguments, request, body in (
        (("create", "t", "4"), ("PUT", f"{AT}/partitions"), 4),
        (("create", "t"), ("PUT", AT), None),
        (("delete", "t"), ("DELETE", f"{AT}/partitions"), None),
        (("partitions", "t", "4"), ("POST", f"{AT}/partitions"), 4),
        (("policy", "public/default", "messageTTL", "--remove"), ("DELETE", f"{NAMESPACE}/messageTTL"), None),
        (
            ("retention", "public/default", "--minutes", "60", "--megabytes", "-1"),
            ("POST", f"{NAMESPACE}/retention"),
            {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1},
        ),
        (("deduplication", "public/default", "true"), ("POST", f"{NAMESPACE}/deduplication"), True),
        (
            ("policy", "public/default", "permissions/etl", '["consume"]'),
            ("POST", f"{NAMESPACE}/permissions/etl"),
            ["consume"],
        ),
        (("policy", "public/default", "messageTTL", "60"), ("POST", f"{NAMESPACE}/messageTTL"), 60),
        (
            ("grant", "t", "etl", "consume", "produce"),
            ("POST", f"{AT}/permissions/etl"),
            ["consume", "produce"],
        ),
        (("compact", "t"), ("PUT", f"{AT}/compaction"), None),
        (("unload", "t"), ("PUT", f"{AT}/unload"), None),
    ):
        admin.others[request] = None
        assert run(*arguments) == "done\n"
        assert last(admin) == request
        assert body is None or admin.bodies[-1] == body
    admin.topics[TOPIC] = {"mine": FakeSubscription()}
    assert run("unsubscribe", "t", "mine") == "done\n"
    assert admin.topics[TOPIC] == {}


def test_what_is_wrong(admin, run, capsys):
    assert "[PULSAR_TOPIC_NOT_FOUND]" in run("subscriptions", "nowhere", code=1)
    admin.others["GET", f"{AT}/partitions"] = {"partitions": 3}
    admin.others["GET", f"{AT.replace('/t', '/plain')}/partitions"] = {"partitions": 0}
    admin.refusals["GET", f"{NAMESPACE}/messageTtl"] = 405, "Method Not Allowed"
    for arguments, why in (
        (("retention", "public/default", "--minutes", "1"), "Give both"),
        (("topics", "public"), "Write it as tenant/namespace"),
        (("policy", "public", "retention"), "Write it as tenant/namespace"),
        (("policy", "public/default", "a", "{"), "is not JSON"),
        (("stats", "a/b"), "tenant or namespace is missing"),
        (("create", "t", "0"), "Give 1 or more"),
        (("partitions", "t", "3"), "has 3 partitions. Pulsar can only add some"),
        (("partitions", "plain", "3"), "has no partitions. Pulsar can only add some"),
        (("policy", "public/default", "messageTTL", "60", "--remove"), "--remove takes no value"),
        (("policy", "public/default", "0x00000000_0xffffffff", "--remove"), "is not the name of a policy"),
        (("policy", "public/default", "messageTtl"), "Names are those of Pulsar's HTTP API"),
    ):
        with pytest.raises(SystemExit) as ended:
            run(*arguments)
        assert ended.value.code == 2
        assert why in capsys.readouterr().err
    assert all(method == "GET" for method, *_ in admin.requests)


def test_an_answer_that_is_too_large_is_named(admin, run):
    admin.others["GET", f"{AT}/partitions"] = {"partitions": 5000}
    admin.others["GET", f"{AT}/partitioned-internalStats"] = "x" * MAX_ANSWER
    text = run("stats-internal", "t", code=1)
    assert "larger than 16 MiB" in text
    assert "Name one partition, such as TOPIC-partition-0" in text
    assert "does not answer" not in text


SCALABLE = "topic://public/default/t"
AT_SCALABLE = "scalable/public/default/t"
TWO_SEGMENTS = {
    "segments": {str(number): {"state": state} for number, state in enumerate(["SEALED", "ACTIVE", "ACTIVE"])}
}


def test_a_topic_that_is_to_be_created_exists(admin, run):
    for topic, create, sized, size, number, said in (
        ("t", f"{AT}/partitions", f"{AT}/partitions", {"partitions": 3}, 5, "It has 3 partitions"),
        ("t", f"{AT}/partitions", f"{AT}/partitions", {"partitions": 0}, 5, "It has no partitions"),
        (
            *(SCALABLE, f"{AT_SCALABLE}?numInitialSegments=5", AT_SCALABLE, TWO_SEGMENTS),
            *(5, "It has 2 segments"),
        ),
    ):
        admin.refusals["PUT", create] = 409, "This topic already exists"
        admin.others["GET", sized] = size
        text = run("create", topic, str(number), code=1)
        assert "[PULSAR_NOT_ALLOWED]" in text
        assert said in text
        assert "Use it as it is, or choose another name" in text
        assert ("add partitions" in text) == bool(size.get("partitions"))
        admin.refusals["PUT", create] = 404, "Namespace not found"
        assert "need Pulsar 5" in run("create", topic, str(number), code=1)


def test_a_subscription_that_is_not_there(admin, run, capsys):
    for names, said in ((["its", "mine"], "It has 'its', 'mine'"), ([], "It has no subscriptions")):
        admin.topics[TOPIC] = {name: FakeSubscription() for name in names}
        subscriptions = {name: {"type": "STREAM"} for name in names}
        admin.others["GET", f"{AT_SCALABLE}/stats"] = {"subscriptions": subscriptions}
        admin.others["GET", AT_SCALABLE] = TWO_SEGMENTS
        for topic in ("t", SCALABLE):
            with pytest.raises(SystemExit):
                run("unsubscribe", topic, "other")
            text = capsys.readouterr().err
            assert "there is no subscription 'other' on " in text
            assert said in text
    assert all(method == "GET" for method, *_ in admin.requests)


def test_scalable_topics(admin, run, capsys):
    stats = {"subscriptions": {"mine": {"type": "STREAM"}}}
    admin.others["GET", f"{AT_SCALABLE}/stats"] = stats
    admin.others["GET", AT_SCALABLE] = TWO_SEGMENTS
    admin.others["PUT", f"{AT_SCALABLE}?numInitialSegments=4"] = None
    admin.others["DELETE", f"{AT_SCALABLE}/subscriptions/mine?type=STREAM"] = None
    assert run("create", SCALABLE, "4") == "done\n"
    assert run("partitions", SCALABLE) == "2\n"
    assert json.loads(run("stats", SCALABLE)) == stats
    assert json.loads(run("subscriptions", SCALABLE)) == ["mine"]
    assert run("unsubscribe", SCALABLE, "mine") == "done\n"
    assert last(admin) == ("DELETE", f"{AT_SCALABLE}/subscriptions/mine?type=STREAM")
    admin.others["GET", "schemas/public/default/t/schemas"] = {"getSchemaResponses": []}
    assert json.loads(run("schemas", SCALABLE)) == {"getSchemaResponses": []}
    admin.topics[TOPIC] = {}
    assert json.loads(run("topics", "public/default")) == [str(TOPIC)]
    admin.others["GET", "scalable/public/default"] = ["topic://public/default/u", SCALABLE]
    names = [str(TOPIC), SCALABLE, "topic://public/default/u"]
    assert json.loads(run("topics", "public/default")) == names
    admin.others["DELETE", AT_SCALABLE] = None
    assert run("delete", SCALABLE) == "done\n"
    asked = len(admin.requests)
    for arguments in (
        ("stats-internal",),
        ("partitions", "8"),
        ("compact",),
        ("unload",),
        ("grant", "etl", "consume"),
    ):
        action, *rest = arguments
        text = run(action, SCALABLE, *rest, code=1)
        assert "[PULSAR_UNSUPPORTED] this command does not take scalable topics" in text
        assert "/admin/v2/scalable" in text
    assert main(["subscriptions", "--admin-url", admin.url, "--topic", SCALABLE]) == 1
    assert "this command does not take scalable topics" in capsys.readouterr().err
    assert len(admin.requests) == asked
