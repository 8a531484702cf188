"""Events that come more than once, under `drop_duplicates_for`, against sets of ids."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import Inputs, SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver
from tests.support.naive_duplicates import Arrival, Counted, NaiveDuplicates
from tests.support.timelines import GAP, MILLI, NOON, STORAGES, batches

BEFORE_MIDNIGHT = datetime(2026, 3, 8, 23, 59, 40, tzinfo=UTC)
BEGINNING = datetime.min.replace(tzinfo=UTC)

steps = st.sampled_from([timedelta(0), MILLI, GAP / 2, GAP - MILLI, GAP, GAP + MILLI, 3 * GAP])


@attrs.frozen
class Message:
    """An event: its name at its source, and a number."""

    name: int
    value: int


@attrs.define
class Numbers:
    values: list[int] = attrs.field(factory=list)

    def update(self, event: Message) -> None:
        """Add a number, so that the order of arrival doesn't show."""
        self.values = sorted([*self.values, event.value])

    def merge(self, other: "Numbers") -> None:
        self.values = sorted([*self.values, *other.values])


def spec_of(way: str = "functions", **changes: Any) -> SessionSpec[Any, Any, Any]:
    settings: dict[str, Any] = {
        "keys": {"key": str},
        "event_time": "at",
        "timeout": GAP,
        "watermark_delay": timedelta(0),
        "inputs": Inputs(drop_duplicates_for=timedelta(0)),
        **changes,
    }
    if way == "aggregates":
        return SessionSpec.aggregate(Message, {"values": agg.collect("value")}, **settings)
    return SessionSpec.of(Numbers, **settings)


@st.composite
def arrivals(draw: st.DrawFn) -> list[list[Arrival]]:
    """Draw events of two keys in any order, several with one name, cut into batches."""
    at, found = NOON, []
    for value in range(draw(st.integers(1, 12))):
        at += draw(steps)
        found.append(Arrival(draw(st.sampled_from("ab")), at, draw(st.integers(0, 4)), value))
    order = draw(st.permutations(found))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=4)))
    return [order[low:high] for low, high in pairwise([0, *cuts, len(order)])]


@st.composite
def nights(draw: st.DrawFn) -> list[list[Arrival]]:
    """Draw events of one key around midnight, many with one name, in batches of their own."""
    at, found = BEFORE_MIDNIGHT, []
    for value in range(draw(st.integers(4, 12))):
        at += draw(st.sampled_from([MILLI, GAP / 4, GAP / 4, GAP / 2, GAP + MILLI]))
        found.append([Arrival("a", at, draw(st.integers(0, 2)), value)])
    return found


def rejected(driver: SessionDriver[Any, Any, Any]) -> Counted:
    """Return how many events were rejected since the last time."""
    kinds = Counter(one.kind for one in driver.take_rejections())
    assert kinds.keys() <= {"late", "duplicate"}
    return Counted(kinds["late"], kinds["duplicate"])


RULES: dict[str, dict[str, Any]] = {
    "gap": {},
    "midnight": {"midnight": "UTC"},
    "beats": {"extends": lambda event: event.value % 3 != 0},
}


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("order", ["arrival", "event_time"])
@pytest.mark.parametrize("way", ["functions", "aggregates"])
@given(data=st.data())
def test_what_is_dropped_is_what_sets_of_ids_know(
    way: str, order: str, rules: str, data: st.DataObject
) -> None:
    """In every micro-batch, with copies of other times, over restarts, in every layout, cut too."""
    kept_for = data.draw(st.sampled_from([timedelta(0), MILLI, GAP, 4 * GAP]))
    spec = spec_of(
        way,
        inputs=Inputs(event_id="name", drop_duplicates_for=kept_for),
        order=order,
        timeout=SessionRules(GAP, **RULES[rules]) if RULES[rules] else GAP,
        **data.draw(STORAGES),
    )
    driver = SessionDriver(spec)
    cut, beats = rules == "midnight", rules == "beats"
    model = NaiveDuplicates(GAP, kept_for, order == "event_time", cut, beats)
    restart, closed = data.draw(st.booleans()), []
    for batch in [*data.draw(nights() if cut else arrivals()), [], []]:
        for event in batch:
            driver.add(event.key, event.at, Message(event.name, event.value))
        watermark = driver.watermark
        if driver.run_batch().batch_id is None:
            # After a restart no micro-batch without data runs before one with data.
            continue
        closed += driver.take_rows()
        assert model.run(batch, watermark or BEGINNING) == rejected(driver)
        if restart:
            driver = SessionDriver.restore(spec, driver.snapshot())

    found = [
        (row.key.key, row.session_start, row.session_end, tuple(sorted(row.result.values)))
        for row in closed
    ]
    assert sorted((*part[:3], tuple(sorted(part.values))) for part in model.closed) == sorted(found)
    assert driver.counts.is_balanced


@pytest.mark.parametrize("order", ["arrival", "event_time"])
@given(data=st.data())
def test_copies_with_the_same_time_never_show(order: str, data: st.DataObject) -> None:
    """However late and however often they come: the rows are those of each event once."""
    events = list(dict.fromkeys(one for batch in data.draw(arrivals()) for one in batch))
    delay = data.draw(st.sampled_from([timedelta(0), 6 * GAP]))
    cut = data.draw(batches(sorted(events, key=lambda event: event.at), delay))
    spec = spec_of(order=order, watermark_delay=delay, **data.draw(STORAGES))
    once, again = SessionDriver(spec), SessionDriver(spec)
    copies = 0
    for place, batch in enumerate(cut):
        earlier = [event for other in cut[: place + 1] for event in other]
        repeated = data.draw(st.lists(st.sampled_from(earlier), max_size=4)) if earlier else []
        copies += len(repeated)
        for driver, came in ((once, batch), (again, [*repeated, *batch])):
            for event in came:
                driver.add(event.key, event.at, Message(event.name, event.value))
            driver.run_batch()
    for driver in (once, again):
        driver.advance_watermark_to(NOON + timedelta(days=1))
        driver.run_until_idle()

    assert once.take_rows() == again.take_rows()
    counts = again.counts
    assert copies == counts.late + counts.duplicate
    assert (len(events), True) == (counts.processed, counts.is_balanced)
