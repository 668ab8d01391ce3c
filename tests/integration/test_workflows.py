"""The files for a host of the project: they run the project's own commands, and hold no secret."""

import re

import yaml

from integration.__main__ import COMMANDS
from integration.docs import ROOT
from tests.integration.test_environment import PYTHONS

FOLDER = ROOT / ".github" / "workflows"
TEXTS = {file.stem: file.read_text() for file in FOLDER.glob("*.yml")}
FILES = {name: yaml.safe_load(text) for name, text in TEXTS.items()}


def commands(job):
    return [step["run"] for step in job.get("steps", []) if "run" in step]


def test_each_change_is_tested_with_each_python():
    job = FILES["ci"]["jobs"]["test"]
    assert commands(job) == [".ci/run"]
    assert job["strategy"]["matrix"]["python"] == list(PYTHONS)
    # YAML 1.1 reads the word `on` as true.
    assert {"pull_request", "workflow_call"} <= FILES["ci"][True].keys()
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_a_release_is_tested_built_and_only_then_published():
    jobs = FILES["release"]["jobs"]
    assert jobs["test"] == {"uses": "./.github/workflows/ci.yml"}
    assert (jobs["build"]["needs"], jobs["publish"]["needs"]) == ("test", "build")
    (release,) = [text for text in commands(jobs["build"]) if "integration" in text]
    assert release.startswith("python3 -m integration release --url ")
    assert "release" in COMMANDS
    assert jobs["publish"]["environment"] == "pypi"
    assert commands(jobs["publish"]) == []


def test_one_job_alone_may_do_more_than_read():
    allowed = {
        (name, job): rights
        for name, file in FILES.items()
        for job, each in file["jobs"].items()
        if (rights := each.get("permissions"))
    }
    assert allowed == {("release", "publish"): {"id-token": "write"}}
    assert [file["permissions"] for file in FILES.values()] == [{"contents": "read"}] * len(FILES)
    assert not re.search(r"secrets\.|password|api-token", "".join(TEXTS.values()))


def test_each_action_is_a_full_commit_that_keeps_no_credentials():
    steps = [
        step for file in FILES.values() for job in file["jobs"].values() for step in job.get("steps", [])
    ]
    actions = [step for step in steps if "uses" in step]
    assert len(actions) >= 8
    for step in actions:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", step["uses"])
        if "/checkout@" in step["uses"]:
            assert step["with"]["persist-credentials"] is False
    for text in TEXTS.values():  # a reader sees which version a commit is
        assert len(re.findall(r"uses: .*@[0-9a-f]{40}  # v[0-9.]+$", text, re.MULTILINE)) == text.count("@")


def test_the_cache_of_a_run_has_no_class_archives():
    (cache,) = [step for step in FILES["ci"]["jobs"]["test"]["steps"] if "/cache@" in step.get("uses", "")]
    assert "!~/.cache/pulsar_spark/classes-*" in cache["with"]["path"].split()


def test_the_version_is_read_as_python_has_it():
    """By a pattern of sed: the package is not installed there."""
    (pattern,) = re.findall(r"s/(.*)/\\1/p", TEXTS["release"])
    found = re.search(pattern.replace("\\(", "(").replace("\\)", ")"), version_file(), re.MULTILINE)
    names = {}
    exec(version_file(), names)
    assert found[1] == names["VERSION"]


def version_file():
    return (ROOT / "pulsar_spark" / "version.py").read_text()
