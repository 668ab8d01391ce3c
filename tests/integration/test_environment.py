"""The environment of the project's commands: exact files, the same for all Pythons and machines."""

import configparser
import re

import pytest
from packaging.requirements import Requirement

import integration.__main__ as commands
from tests.loops import for_each

LOCKS = ("build", "demo", "all", "release")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
HASH = re.compile(r" +--hash=sha256:[0-9a-f]{64}")


def locked(name):
    """Each requirement of a lock, with how many hashes it has."""
    text = commands.lock_file(name).read_text().replace("\\\n", "")
    found = {}
    for line in text.splitlines():
        requirement, *hashes = HASH.split(line)
        assert all(not rest.strip() for rest in hashes), line
        found[Requirement(requirement)] = len(hashes)
    return found


def versions(name, python, machine):
    """The version of each package that one Python gets."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.9",
        "platform_machine": machine,
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_system": "Linux",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    found = {}
    for requirement in locked(name):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert requirement.name not in found
            (found[requirement.name],) = [one.version for one in requirement.specifier]
    return found


def wanted(*extras):
    config = configparser.ConfigParser()
    config.read(commands.ROOT / "setup.cfg")
    lists = [config["options"]["install_requires"]]
    lists += [config["options.extras_require"][extra] for extra in extras]
    lines = [line for each in lists for line in each.splitlines() if line and not line.startswith("#")]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("name", LOCKS)
def test_each_package_has_one_version_and_its_hashes(name):
    for requirement, hashes in locked(name).items():
        assert [one.operator for one in requirement.specifier] == ["=="]
        assert hashes >= 1, requirement


@for_each("python", PYTHONS)
@for_each("machine", MACHINES)
@for_each(("name", "extras"), [("demo", ()), ("all", ("dev", "docs"))])
def test_the_locks_are_those_of_setup_cfg(name, extras, python, machine):
    """After a change of it they have to be made again: docs/developers/development.md says how."""
    found = versions(name, python, machine)
    for requirement in wanted(*extras):
        if requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
            assert found[requirement.name] in requirement.specifier


@pytest.mark.parametrize("python", PYTHONS)
def test_all_is_the_demo_and_more(python):
    """So one environment does for both."""
    demo, everything = versions("demo", python, "x86_64"), versions("all", python, "x86_64")
    assert demo.items() <= everything.items()
    assert not {"sphinx", "mypy", "pytest", "ruff", "pulsar-client", "furo"} & set(demo)
    assert versions("build", python, "x86_64").items() <= everything.items()


def test_nothing_is_installed_but_by_its_hash():
    *packages, own = commands.install_steps("all")
    assert all("--require-hashes" in step for step in packages)
    # What is built is built with what is there, and not with what an index has today.
    assert all("--no-build-isolation" in step for step in (*packages[1:], own))
    assert "--editable" in own
    # What pip chooses by itself changes with each release of a package.
    assert all("--no-deps" in step for step in commands.install_steps("all"))
