"""RangeProgress against made-up topics, whose readers are moved and whose ledgers are trimmed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading.range_progress import Gap, RangeProgress


class Topic:
    """Ledgers 10, 20, ... of visible entries and others; what is trimmed is gone."""

    def __init__(self, ledgers):
        self.ledgers = {10 * n + 10: list(visible) for n, visible in enumerate(ledgers)}

    def ids(self, *, visible=True):
        return [
            MessageId(ledger, entry)
            for ledger, entries in self.ledgers.items()
            for entry, is_visible in enumerate(entries)
            if is_visible or not visible
        ]

    def trim(self, ledger):
        for each in [each for each in self.ledgers if each <= ledger]:
            del self.ledgers[each]

    def before(self, position):
        """The position before the first entry after one; before its ledger, where nothing is before that."""
        ids = self.ids(visible=False)
        after = next((each for each in ids if each > position), None)
        earlier = [each for each in ids if after is None or each < after]
        return earlier[-1] if earlier else after.ledger_start


class Reader:
    """What a broker knows of a reader."""

    def __init__(self, topic, position):
        self.topic = topic
        self.mark = topic.before(position)
        self.acked = set()
        self.read_to = self.mark

    def next(self):
        """The next visible entry; what is not visible is acknowledged."""
        for each in self.topic.ids(visible=False):
            if each > self.read_to:
                self.read_to = each
                if each in self.topic.ids():
                    return each
                self.acked.add(each)
        return None

    def stand(self):
        """The mark: it moves over all that is acknowledged after it."""
        for each in self.topic.ids(visible=False):
            if each > self.mark:
                if each not in self.acked:
                    break
                self.mark = each
        return self.mark

    def move(self, position):
        self.mark = max(self.mark, position)
        self.read_to = max(self.read_to, position)

    def roll_over(self):
        """The broker moves a reader that stands at the end of a ledger."""
        after = next((each for each in self.topic.ids(visible=False) if each > self.stand()), None)
        if after is not None and after.ledger > self.mark.ledger:
            self.mark = after.ledger_start


class Reading:
    """A range that is read entry by entry, while readers are moved and ledgers are trimmed.

    Attributes:
        taken: entries that were received.
        reports: lost ranges.
    """

    def __init__(self, topic, start, end, begins, disturb):
        self.topic, self.end, self._disturb = topic, end, disturb
        self.taken, self.reports = [], []
        self.progress = RangeProgress(start, end, begins=begins)

    def run(self):
        reader = Reader(self.topic, self.progress.position)
        self._disturb(reader)
        if self.progress.opened(reader.stand()):
            self.probe(None)
        while not self.progress.is_done:
            self._disturb(reader)
            found = reader.next()
            self._disturb(reader)
            gap = self.gap_before(found, reader)
            if gap is Gap.SKIPPED and not self.report(self.progress.repeat(found)):
                reader = Reader(self.topic, self.progress.position)
            else:
                self.pass_on(found)

    def pass_on(self, found):
        if found is None:
            self.report(self.progress.passed(None))
        else:
            self.progress.received(found)
            self.taken.append(found)

    def gap_before(self, found, reader):
        if found is None:
            gap = self.progress.judge_silence(self.end, reader.stand())
            assert gap is not None
        elif self.progress.first_gap(np.array([found.ledger]), np.array([found.entry])) == 1:
            gap = Gap.EMPTY
        else:
            gap = self.progress.judge_gap(reader.stand(), found)
        return self.probe(found) if gap is Gap.UNKNOWN else gap

    def probe(self, found):
        second = Reader(self.topic, self.progress.position)
        self._disturb(second)
        begins, first = second.stand(), second.next()
        if begins.ledger > self.progress.position.ledger and not begins.is_entry:
            begins = Reader(self.topic, self.progress.position.back(1)).stand()
        probed = self.progress.judge_probe(begins, first, found)
        self.report(probed.lost)
        return probed.gap

    def report(self, lost):
        if lost is not None:
            self.reports.append(lost)
        return lost is not None


def is_within(entry, reports):
    return any(each.start < entry <= each.end for each in reports)


LEDGERS = st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=4)


@given(
    LEDGERS,
    st.lists(st.sampled_from(["read", "move", "trim", "roll over"]), max_size=40),
    st.booleans(),
    st.data(),
)
def test_what_is_not_read_is_reported_lost_and_the_rest_is_in_order(ledgers, steps, is_known, data):
    """Readers are moved and ledgers trimmed at any time, while all is read entry by entry.

    With ``begins`` each entry is read or named. Without, those before the first one read may be missed.
    """
    topic = Topic([*ledgers, [True]])
    end = topic.ids()[-1]
    start = data.draw(st.sampled_from([topic.ids(visible=False)[0].ledger_start, *topic.ids()[:-1]]))
    everything = [each for each in topic.ids() if each > start]
    # Once the start is acknowledged, its ledger may be gone, before the range is planned or after it.
    is_read = everything[0].ledger > start.ledger
    if is_read and data.draw(st.booleans()):
        topic.trim(start.ledger)
    begins = everything[0].previous if is_known else None

    def disturb(reader):
        step = steps.pop() if steps else "read"
        target = data.draw(st.sampled_from(topic.ids(visible=False)))
        if step == "move":
            reader.move(target)
        elif step == "roll over":
            reader.roll_over()
        elif step == "trim":
            gone = min(target.ledger, end.ledger - 1)
            last = [each for each in topic.ids(visible=False) if each.ledger <= gone]
            topic.trim(gone)
            if last:
                reader.move(last[-1])

    reading = Reading(topic, start, end, begins, disturb)
    if is_read and data.draw(st.booleans()):
        topic.trim(start.ledger)
    oldest = topic.ids()[0].ledger
    reading.run()
    taken, reports = reading.taken, reading.reports
    assert taken == sorted(set(taken))
    missing = [entry for entry in everything if entry not in taken]
    left_out = [each for each in reports if "readers did not receive them" in each.why]
    assert all(entry.ledger < topic.ids()[0].ledger or is_within(entry, left_out) for entry in missing)
    assert all(each.start < each.end for each in reports)
    if topic.ids()[0].ledger == oldest:
        assert reports == left_out, "nothing was trimmed"
    first = taken[0] if taken else end
    assert all(is_within(entry, reports) or (not is_known and entry < first) for entry in missing)
