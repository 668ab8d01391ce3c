"""What the demonstration shows, on a terminal and in a file."""

import io
import json

import pytest

from integration.demo_board import Board, lag_of


class Terminal(io.StringIO):
    def isatty(self):
        return True


def sums(*totals, until="2026-01-02T03:04:05.000Z"):
    shops = ("Aalborg", "Bergen", "Cork")
    for shop, total in zip(shops, totals, strict=False):
        yield json.dumps({"until": until, "shop": shop, "purchases": 7, "total": total})


def progress(rate, *reports):
    sources = [{"latestOffset": None if report is None else json.dumps(report)} for report in reports]
    return {"processedRowsPerSecond": rate, "sources": sources}


QUERIES = [
    ("purchases", progress(201.4, None)),
    ("sums", progress(99.6, {"backlogEntries": 3, "backlogMessagesEstimate": 40})),
    ("screen", None),
]
SHOWN = """\
  until                shop       purchases       total
  2026-01-02 03:04:05  Aalborg            7        1.50
  2026-01-02 03:04:05  Bergen             7       22.25

  query                 rows/s  lag
  purchases                201  -
  sums                     100  40 messages
  screen                     -  -

"""


def lines(text):
    return [line.rstrip() for line in text.splitlines()]


def test_in_a_file_it_is_written_when_there_are_new_sums():
    out = io.StringIO()
    board = Board(out)
    board.draw(QUERIES)
    assert out.getvalue() == ""
    board.take(sums(1.5, 22.25))
    for _ in range(3):
        board.draw(QUERIES)
    assert lines(out.getvalue()) == lines(SHOWN)
    assert board.rows == 2


def test_on_a_terminal_it_is_drawn_in_its_place():
    out = Terminal()
    board = Board(out)
    board.take(sums(1.5, 22.25))
    board.draw(QUERIES)
    first = out.getvalue()
    board.draw(QUERIES)
    again = out.getvalue()[len(first) :]
    assert lines(first) == lines(SHOWN)
    # As many lines up as the first drawing has.
    assert again == f"\x1b[{first.count(chr(10))}F\x1b[J{first}"


def test_an_older_window_does_not_replace_a_newer_one():
    out = io.StringIO()
    board = Board(out)
    board.take(sums(9))
    board.take(sums(5, until="2026-01-02T03:04:00.000Z"))
    board.draw([])
    assert "9.00" in out.getvalue()
    assert board.rows == 2


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([], "-"),
        ([None, "7", "null"], "-"),
        ([json.dumps({"backlogEntries": 3})], "3 entries"),
        ([json.dumps({"backlogEntries": 3, "backlogMessagesEstimate": 4})] * 2, "8 messages"),
        ([{"backlogEntries": 3, "backlogMessagesEstimate": 4}, {"backlogEntries": 2}], "5 entries"),
    ],
)
def test_the_lag(reports, expected):
    assert lag_of(reports) == expected
