"""What a planner leaves for the listener."""

import json
import os
import subprocess
import sys

from pulsar_spark.spark.monitoring.driver_files import (
    PlannerFile,
    new_planner_id,
    planners_path,
    read_planners,
)
from pulsar_spark.spark.monitoring.source_report import SourceReport


def report(planner, time=5, losses=0):
    return SourceReport(planner, "s", 1, time, (), None, losses, 0)


def test_the_listener_sees_the_last_report(folder):
    mine = new_planner_id()
    assert mine.startswith(f"{os.getpid()}-")
    assert mine != new_planner_id()
    file = PlannerFile()
    assert read_planners(planners_path()) == {}
    file.write(report(mine).to_json())
    assert read_planners(planners_path()) == {mine: report(mine)}
    file.write(report(mine, time=9).to_json())
    assert read_planners(planners_path()) == {mine: report(mine)}, "nothing but its time is new"
    file.write(report(mine, time=10, losses=1).to_json())
    assert read_planners(planners_path()) == {mine: report(mine, time=10, losses=1)}
    file.remove()
    assert read_planners(planners_path()) == {}


def test_the_file_of_a_process_that_is_no_more_counts_for_nothing(folder):
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True, text=True
    )
    for planner in (f"{int(done.stdout)}-a", "nobody-b"):
        PlannerFile().write(report(planner).to_json())
    assert read_planners(planners_path()) == {}


def test_what_cannot_be_read_disturbs_nobody(folder):
    mine = new_planner_id()
    PlannerFile().write(report(mine).to_json())
    for name, text in {"x": "no json", "y": "{}", "z": json.dumps({"planner": 1, "topics": 3})}.items():
        (folder / "pulsar_spark_planners" / name).write_text(text)
    assert list(read_planners(planners_path())) == [mine]


def test_where_spark_does_not_run(no_spark, caplog):
    file = PlannerFile()
    for losses in range(3):
        file.write(report("1-a", losses=losses).to_json())
    file.remove()
    assert planners_path() is None
    assert caplog.text.count("only after each micro-batch") == 1
    assert read_planners(planners_path()) == {}
