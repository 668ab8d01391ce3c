"""The command ``subscriptions``: what it lists, what it takes for unused, and what it removes."""

import json
import uuid

import pytest

from pulsar_spark.cli import main
from pulsar_spark.cli.subscriptions import named_in
from pulsar_spark.ids import TopicName
from tests.fake_admin import FakeSubscription

UUIDS = [f"0f8fad5b-d9cb-469f-a165-7086772895{number:02}" for number in range(4)]
NAMES = [f"spark-pulsar-{uuid}" for uuid in UUIDS]
TOPIC = TopicName.parse("topic")
TOPIC_NAME = str(TOPIC)
PARTS = [TOPIC.of_partition(number) for number in range(2)]


@pytest.fixture
def run(admin, capsys):
    """Run the command; gives what it printed, each line without unneeded blanks."""

    def run(*arguments, code=0):
        assert main(["subscriptions", "--admin-url", admin.url, *arguments]) == code
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint of a query with the first subscription."""
    folder = tmp_path / "queries" / "a"
    (folder / "offsets").mkdir(parents=True)
    offset = json.dumps({"subscription": NAMES[0], "topics": {}})
    (folder / "offsets" / "0").write_text(f"v1\n{{}}\n{offset}")
    return folder


HEADER = "SUBSCRIPTION TOPIC PARTITIONS CONNECTED BACKLOG CHECKPOINT"


def removals(admin):
    return [path.rpartition("/")[2] for method, path, _ in admin.requests if method == "DELETE"]


def test_a_json_object_for_each_subscription(admin, run):
    admin.topics[PARTS[0]] = {NAMES[1]: FakeSubscription(7, is_connected=True)}
    (line,) = run("--json")
    assert json.loads(line) == {
        "subscription": NAMES[1],
        "topic": TOPIC_NAME,
        "partitions": 1,
        "connected": True,
        "backlog": 7,
        "checkpoint": "not searched",
    }


def test_all_durable_subscriptions_of_queries_are_listed(admin, run):
    admin.topics[PARTS[1]] = {NAMES[1]: FakeSubscription(7, is_connected=True), NAMES[0]: FakeSubscription(3)}
    admin.topics[PARTS[0]] = {
        NAMES[2]: FakeSubscription(is_durable=False),
        f"other-{UUIDS[0]}": FakeSubscription(),
        f"spark-pulsar-more-{UUIDS[0]}": FakeSubscription(),
        "spark-pulsar": FakeSubscription(),
    }
    admin.topics[TopicName.parse("public/else/t")] = {NAMES[3]: FakeSubscription()}
    assert run() == [
        HEADER,
        f"{NAMES[0]} {TOPIC_NAME} 1 no 3 not searched",
        f"{NAMES[1]} {TOPIC_NAME} 1 yes 7 not searched",
    ]
    assert run("--prefix", "other") == [HEADER, f"other-{UUIDS[0]} {TOPIC_NAME} 1 no 0 not searched"]
    assert run("--namespace", "public/else", "--namespace", "public/else") == [
        HEADER,
        f"{NAMES[3]} public/else/t 1 no 0 not searched".replace("public", "persistent://public"),
    ]
    assert (
        run("--topic", "topic-partition-0", "--topic", "public/else/t")[1:]
        == run("--namespace", "public/else")[1:]
    )


def test_partitions_are_added_up_unless_they_are_asked_for(admin, run):
    for number in range(200):
        used = FakeSubscription(number, is_connected=number == 7)
        admin.topics[TOPIC.of_partition(number)] = {NAMES[0]: used}
    assert run() == [HEADER, f"{NAMES[0]} {TOPIC_NAME} 200 yes {sum(range(200))} not searched"]
    listed = run("--partitions")
    assert len(listed) == 201
    assert f"{NAMES[0]} {TOPIC.of_partition(7)} 1 yes 7 not searched" in listed


def test_a_removal_that_is_refused_does_not_hide_the_others(admin, run, capsys, checkpoint):
    for part in PARTS:
        admin.topics[part] = {NAMES[1]: FakeSubscription()}
    refused = f"persistent/public/default/{PARTS[0].local}/subscription/{NAMES[1]}"
    admin.refusals["DELETE", refused] = 403, "no right"
    said = run("--checkpoint", str(checkpoint), "--remove", code=1)
    assert said[-2:] == [f"removed {NAMES[1]} from {TOPIC_NAME}", "1 removed"]
    assert NAMES[1] in admin.topics[PARTS[0]]


def test_only_what_no_checkpoint_names_and_nobody_uses_is_removed(admin, run, checkpoint):
    for part in PARTS:
        admin.topics[part] = {name: FakeSubscription() for name in NAMES[:3]}
    admin.topics[PARTS[1]][NAMES[2]].is_connected = True  # of one partition: the query lives
    arguments = ["--topic", "topic", "--checkpoint", str(checkpoint.parent.parent)]
    listed = run(*arguments)
    assert listed[1] == f"{NAMES[0]} {TOPIC_NAME} 2 no 0 {checkpoint}"
    assert listed[2] == f"{NAMES[1]} {TOPIC_NAME} 2 no 0 none"
    assert listed[-1] == "2 unused; run with --remove to remove them"
    assert removals(admin) == []
    assert run(*arguments, "--remove") == [
        *listed[:-1],
        f"removed {NAMES[1]} from {TOPIC_NAME} (2 partitions)",
        "2 removed",
    ]
    assert [list(admin.topics[part]) for part in PARTS] == [[NAMES[0], NAMES[2]]] * 2


def test_a_copy_of_checkpoints_may_not_have_the_newest_queries(admin, checkpoint, capsys):
    admin.topics[TOPIC] = {NAMES[0]: FakeSubscription()}
    arguments = ["subscriptions", "--admin-url", admin.url, "--checkpoint", f"file://{checkpoint}"]
    assert main(arguments) == 0
    assert capsys.readouterr().err == ""
    admin.topics[TOPIC][NAMES[1]] = FakeSubscription()
    for more in ([], ["--remove"]):
        assert main([*arguments, *more]) == 0
        assert capsys.readouterr().err.startswith("If a folder is a copy, queries that were started after")


def test_one_subscription_is_listed_and_removed(admin, run, checkpoint):
    for part in PARTS:
        admin.topics[part] = {name: FakeSubscription() for name in NAMES}
    arguments = ["--checkpoint", str(checkpoint), "--subscription"]
    listed = [HEADER, f"{NAMES[2]} {TOPIC_NAME} 2 no 0 none"]
    assert run(*arguments, NAMES[2]) == [*listed, "2 unused; run with --remove to remove them"]
    removed = f"removed {NAMES[2]} from {TOPIC_NAME} (2 partitions)"
    assert run(*arguments, NAMES[2], "--remove") == [*listed, removed, "2 removed"]
    for part in PARTS:
        assert list(admin.topics[part]) == [NAMES[0], NAMES[1], NAMES[3]]
    assert run(*arguments, NAMES[0], "--remove")[-1] == "0 removed", "the checkpoint names it"


@pytest.mark.parametrize("name", [NAMES[1], NAMES[0][:-1], "other", ""])
def test_a_subscription_that_no_query_has_is_an_error(admin, capsys, checkpoint, name):
    admin.topics[TOPIC] = {NAMES[0]: FakeSubscription(), "other": FakeSubscription()}
    arguments = ["subscriptions", "--admin-url", admin.url, "--checkpoint", str(checkpoint), "--remove"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--subscription", name])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert f"[PULSAR_OPTION] no query has a subscription {name!r} on these topics" in err
    assert out == ""
    assert removals(admin) == []


def test_what_is_used_or_gone_meanwhile_is_kept(admin, run, checkpoint):
    admin.topics[TOPIC] = {name: FakeSubscription() for name in NAMES[1:]}
    answer = admin.answer

    def meanwhile(method, path):
        if method == "DELETE" and path.endswith(NAMES[1]):
            admin.topics[TOPIC][NAMES[1]].is_connected = True
        if method == "DELETE" and path.endswith(NAMES[2]):
            del admin.topics[TOPIC][NAMES[2]]
        return answer(method, path)

    admin.answer = meanwhile
    assert run("--checkpoint", str(checkpoint), "--remove")[-4:] == [
        f"kept {NAMES[1]} on {TOPIC}: a query is connected now",
        f"{NAMES[2]} on {TOPIC} no longer exists",
        f"removed {NAMES[3]} from {TOPIC}",
        "1 removed",
    ]


def test_a_topic_that_is_deleted_meanwhile_has_none(admin, run):
    for name in ("a", "b", "c"):
        admin.topics[TopicName.parse(name)] = {NAMES[0]: FakeSubscription()}
    path = "/admin/v2/persistent/public/default"
    admin.vanishing = {f"{path}/a/subscriptions", f"{path}/b/stats"}
    assert run() == [HEADER, f"{NAMES[0]} persistent://public/default/c 1 no 0 not searched"]


# Wrong usage -> what is said.
WRONG = {
    "--remove requires --checkpoint": ["--remove"],
    "--topic and --namespace cannot be used together": ["--topic", "t", "--namespace", "public/default"],
    "--auth-params is given without --auth-plugin": ["--auth-params", "secret"],
    "authParams is wrong for the authentication plugin tls": [
        "--auth-plugin",
        "tls",
        "--auth-params",
        "secret:x",
    ],
    "hdfs://nn/checkpoints is a URL, which is not read. Copy": ["--checkpoint", "hdfs://nn/checkpoints"],
    "is not a namespace": ["--namespace", "public"],
}


@pytest.mark.parametrize("said", WRONG)
def test_wrong_usage_removes_nothing(admin, capsys, said):
    admin.topics[TOPIC] = {NAMES[0]: FakeSubscription()}
    with pytest.raises(SystemExit) as ended:
        main(["subscriptions", "--admin-url", admin.url, *WRONG[said]])
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert said in told.err
    assert "secret" not in told.err
    assert told.out == ""
    assert removals(admin) == []


def test_a_topic_that_does_not_exist(admin, capsys):
    assert main(["subscriptions", "--admin-url", admin.url, "--topic", "missing"]) == 1
    assert "the topic does not exist; topic persistent://public/default/missing" in capsys.readouterr().err


def test_nothing_is_removed_where_checkpoints_cannot_be_read(admin, run, tmp_path):
    admin.topics[TOPIC] = {NAMES[0]: FakeSubscription()}
    assert run("--remove", "--checkpoint", str(tmp_path / "nowhere"), code=1) == []
    assert removals(admin) == []


def test_the_login_goes_with_each_request(admin, run):
    admin.topics[TOPIC] = {NAMES[0]: FakeSubscription()}
    run("--auth-plugin", "token", "--auth-params", "token:abc")
    assert {login for _, _, login in admin.requests} == {"Bearer abc"}


METADATA = {"batchWatermarkMs": 0, "batchTimestampMs": 1763719000000, "conf": {}}


def offset(name):
    return {"subscription": name, "topics": {"persistent://public/default/t": {"0": "12:99", "1": "13:4"}}}


def write_batch(checkpoint, number, *offsets):
    """One file of Spark's offset log: its version, the batch's settings, and a line for each source."""
    lines = ["v1", json.dumps(METADATA)]
    lines += ["-" if each is None else json.dumps(each) for each in offsets]
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(number)).write_text("\n".join(lines))


@pytest.fixture
def ids():
    return [str(uuid.uuid4()) for _ in range(4)]


def test_all_sources_of_all_batches_below_a_folder(tmp_path, ids):
    write_batch(tmp_path / "a", 0, offset(f"spark-pulsar-{ids[0]}"))
    write_batch(tmp_path / "a", 1, offset(f"spark-pulsar-{ids[0]}"))
    write_batch(tmp_path / "deep" / "er" / "b", 7, None, {"logOffset": 3}, offset(f"own prefix é-{ids[1]}"))
    write_batch(tmp_path / "deep" / "er" / "b", 8, offset(f"x-{ids[2]}"), offset(f"y-{ids[1]}"))
    assert named_in([tmp_path]) == {
        ids[0]: tmp_path / "a",
        ids[1]: tmp_path / "deep" / "er" / "b",
        ids[2]: tmp_path / "deep" / "er" / "b",
    }


def test_a_checkpoint_itself_and_several_folders(tmp_path, ids):
    for name, each in zip("abc", ids, strict=False):
        write_batch(tmp_path / name, 0, offset(f"spark-pulsar-{each}"))
    assert set(named_in([tmp_path / "a", tmp_path / "c"])) == {ids[0], ids[2]}


def test_what_is_not_offsets_does_not_count(tmp_path, ids):
    write_batch(tmp_path / "a", 0, offset(f"spark-pulsar-{ids[0]}"))
    (tmp_path / "a" / "metadata").write_text(json.dumps({"id": ids[1]}))
    (tmp_path / "a" / "commits").mkdir()
    (tmp_path / "a" / "commits" / "0").write_text(ids[2])
    (tmp_path / "a" / "offsets" / f".1.{ids[3]}.tmp").write_text(json.dumps(offset(f"spark-pulsar-{ids[3]}")))
    (tmp_path / "a" / "offsets" / ".0.crc").write_bytes(b"crc\0\xff")
    assert set(named_in([tmp_path])) == {ids[0]}


def test_an_offset_that_is_quoted_once_more_counts(tmp_path, ids):
    write_batch(tmp_path / "a", 0, {"offset": json.dumps(offset(f"spark-pulsar-{ids[0]}"))})
    assert set(named_in([tmp_path])) == {ids[0]}


def test_links_are_followed_once(tmp_path, ids):
    write_batch(tmp_path / "elsewhere" / "a", 0, offset(f"spark-pulsar-{ids[0]}"))
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "up").symlink_to(folder)
    assert named_in([folder]) == {ids[0]: folder / "link" / "a"}


def test_a_folder_without_checkpoints_is_an_error(tmp_path, ids):
    """It may be where nothing is mounted; another folder that has some does not excuse it."""
    write_batch(tmp_path / "a", 0, offset(f"spark-pulsar-{ids[0]}"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        named_in([tmp_path / "a", tmp_path / "empty"])


def test_a_folder_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*/nowhere\. Check its name") as caught:
        named_in([tmp_path / "nowhere"])
    assert "Errno" not in str(caught.value)


def test_an_offset_that_cannot_be_read_is_an_error(tmp_path, ids):
    write_batch(tmp_path / "a", 0, offset(f"spark-pulsar-{ids[0]}"))
    (tmp_path / "a" / "offsets" / "1").mkdir()
    with pytest.raises(IsADirectoryError):
        named_in([tmp_path])
