"""How the costs of planning grow with partitions."""

from integration.bench import planning
from integration.bench.planning import Point


def point(partitions, slope):
    """A point on exact lines, but for latestOffset's slope."""
    return Point(
        partitions,
        latest=3 + slope * partitions,
        latest_at_once=4 + 2 * slope * partitions,
        cpu=2 + 0.25 * partitions,
        mib=10 + partitions / 64,
        connections=1 + partitions // 500,
        requests=1 + 2 * partitions,
    )


def test_the_line_of_each_cost_is_found():
    assert planning.growth_lines([point(count, 0.4) for count in (1, 50, 1000)]) == [
        "1 to 1000 partitions, with news in all:",
        "  latestOffset with pauses: 3.0 ms + 0.40 ms x partitions (needs less than 1 ms)",
        "  latestOffset after each other: 4.0 ms + 0.80 ms x partitions (needs less than 1 ms)",
        "  CPU of planning: 2.0 ms + 0.25 ms x partitions",
        "  memory of the planner: 10.0 MiB + 16 KiB x partitions",
        "  requests of a micro-batch: 1.0 + 2.00 x partitions",
        "  connections: at most 3",
    ]


def test_the_line_is_that_of_least_squares():
    """Of 1, 2 and 6 at 0, 1 and 2: the mean is 3, the slope (6 - 1) / 2."""
    points = [point(at, 0)._replace(latest=value) for at, value in ((0, 1.0), (1, 2.0), (2, 6.0))]
    assert "latestOffset with pauses: 0.5 ms + 2.50 ms x partitions" in planning.growth_lines(points)[1]


def test_a_slope_that_is_too_steep_is_marked():
    lines = planning.growth_lines([point(count, 0.5) for count in (1, 2)])
    assert lines[1].endswith("(needs less than 1 ms)")
    assert lines[2].endswith("(needs less than 1 ms, ABOVE)")
