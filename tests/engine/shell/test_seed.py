"""State under other rules: keys of other types, and what a seed is refused for."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import attrs
import pandas as pd
import pytest

from sessionkit import EventTimeGap, SessionRules, SessionSpec
from sessionkit._arrays import whole_batch
from sessionkit._engine.shell.seed import HELD_COLUMN, KEPT_COLUMN, SeedFormat
from sessionkit._engine.shell.storage import logic_of
from sessionkit._instants import BEGINNING_US
from sessionkit.errors import StateError, StateValueError
from sessionkit.state import DecimalType
from sessionkit.testing import SessionDriver
from tests.support.session_specs import Open, Reading, collecting, in_order

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
GAP = timedelta(minutes=10)


def keyed(kind: Any, make: Any = collecting) -> SessionSpec[Any, Any, Any]:
    """Return a spec with a key of a type."""
    spec = make(EventTimeGap(GAP), watermark_delay=timedelta(hours=1))
    return attrs.evolve(spec, keys={"key": kind})


def with_session(spec: SessionSpec[Any, Any, Any], key: Any) -> SessionDriver[Any, Any, Any]:
    """Return a driver in which a key has an event."""
    driver = SessionDriver(spec)
    driver.add(key, NOON, Reading(1, GAP))
    driver.run_batch()
    return driver


MONEY = Annotated[Decimal, DecimalType(22, 2)]


@pytest.mark.parametrize("make", [collecting, in_order])
@pytest.mark.parametrize(
    ("before", "key", "after", "expected"),
    [
        (int, 7, str, "7"),
        (str, "7", int, 7),
        (date, date(2026, 3, 8), str, "2026-03-08"),
        (str, "2026-03-08", date, date(2026, 3, 8)),
        (int, 7, MONEY, Decimal("7.00")),
        (MONEY, Decimal("7.00"), int, 7),
        (bytes, b"a", str, "a"),
        (str, "a", bytes, b"a"),
        (UUID, UUID(int=10), str, "00000000-0000-0000-0000-00000000000a"),
        (str, "a", Literal["a", "b"], "a"),
    ],
)
def test_a_key_of_another_type_goes_on(
    make: Any, before: Any, key: Any, after: Any, expected: Any
) -> None:
    """An event under the new type joins the session that was stored, or held, under the old one."""
    driver = with_session(keyed(before, make), key).migrate(keyed(after, make))
    driver.add(expected, NOON + GAP / 2, Reading(2, GAP))
    driver.run_batch()

    assert [Open([1, 2])] == [session.state for session in driver.open_sessions()]


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [(str, "01", int), (str, "x", int), (MONEY, Decimal("7.50"), int), (bytes, b"\xff", str)],
)
def test_a_key_without_exactly_one_form_is_refused(before: Any, key: Any, after: Any) -> None:
    """Two keys could become one, or a value be lost."""
    driver = with_session(keyed(before), key)

    with pytest.raises(StateValueError, match="the stored keys of `key.key` don't fit"):
        driver.migrate(keyed(after))


@pytest.mark.parametrize(
    ("before", "key", "after", "text"),
    [
        (str, "yes", bool, "bool"),
        (str, f"{UUID(int=10)}", UUID, "uuid"),
        (int, 7, time, "time"),
    ],
)
def test_a_type_that_no_rule_converts_is_refused(
    before: Any, key: Any, after: Any, text: str
) -> None:
    """Before anything is read, and where both are stored alike, too."""
    with pytest.raises(StateError, match=f"the key column `key` can't become {text}"):
        with_session(keyed(before), key).migrate(keyed(after))


@attrs.frozen
class Renamed:
    number: int


def test_held_events_of_another_class_are_refused() -> None:
    """The new class has a field that the events that wait don't have."""
    old = keyed(str, in_order)
    new: Any = attrs.evolve(
        old,
        logic=attrs.evolve(
            old.functions,
            event=Renamed,
            create=lambda key, event: old.state([event.number]),
            update=lambda state, event: state,
        ),
    )

    with pytest.raises(StateError, match="the column `event.number` of the events that"):
        with_session(old, "a").migrate(new)


def test_a_gap_by_the_state_needs_sessions_that_came_in_order() -> None:
    """An event older than others that its session has would end it before them."""
    rules = SessionRules(GAP, state_gap=lambda state: GAP)
    ruled = attrs.evolve(keyed(str, in_order), timeout=rules)
    with pytest.raises(StateError, match="`state_gap` needs sessions whose events came in"):
        with_session(keyed(str), "a").migrate(ruled)
    carried = with_session(keyed(str, in_order), "a").migrate(ruled)
    carried.advance_watermark_to(NOON + GAP / 2)
    carried.run_until_idle()
    assert [NOON + GAP] == [session.session_end for session in carried.open_sessions()]


@attrs.define
class Group:
    """A group state: whether it remembers anything."""

    exists: bool


def test_a_seed_for_other_rules_or_under_way_is_refused() -> None:
    """A seed is read by the query that it was made for, in its first micro-batch."""
    spec, other = keyed(str), keyed(int)
    form = SeedFormat.of(logic_of(spec), BEGINNING_US)
    batch = whole_batch(logic_of(spec).program.schema.empty_table()).serialize().to_pybytes()
    frame = pd.DataFrame({KEPT_COLUMN: [batch], HELD_COLUMN: [None]}, dtype=object)

    assert form.read(logic_of(spec), [frame], Group(exists=False)) is not None
    with pytest.raises(StateError, match="a seed came to a query that is under way"):
        form.read(logic_of(spec), [frame], Group(exists=True))
    with pytest.raises(StateError, match="`keys` is"):
        form.read(logic_of(other), [frame], Group(exists=False))


def views_until(spec: SessionSpec[Any, Any, Any], *minutes: int) -> SessionDriver[Any, Any, Any]:
    """Return a driver with a reading of one key at each of these minutes, all folded."""
    driver = SessionDriver(spec)
    for value, minute in enumerate(minutes):
        driver.add("ann", NOON + timedelta(minutes=minute), Reading(value, GAP))
    driver.run_batch()
    driver.advance_watermark_to(NOON + timedelta(minutes=minutes[-1]))
    driver.run_until_idle()
    return driver


GAP_ALONE = in_order(EventTimeGap(GAP), watermark_delay=timedelta(hours=1))
RULED = attrs.evolve(GAP_ALONE, timeout=SessionRules(GAP, max_duration="15 minutes"))
OTHERS = attrs.evolve(GAP_ALONE, timeout=SessionRules(GAP, max_events=3, changes_of="value"))


@pytest.mark.parametrize(
    ("before", "after", "closed"),
    [
        pytest.param(GAP_ALONE, RULED, [([0, 1, 2], "max_duration"), ([9], "gap")], id="added"),
        pytest.param(RULED, GAP_ALONE, [([0, 1, 2, 9], "gap")], id="taken away"),
        pytest.param(RULED, OTHERS, [([0, 1, 2], "max_events"), ([9], "gap")], id="others"),
    ],
)
def test_other_rules_go_for_open_sessions_too(before: Any, after: Any, closed: Any) -> None:
    """An open session closes by the new rules, from its own times; it isn't cut where it's past."""
    driver = views_until(before, 0, 5, 10).migrate(after)
    driver.add("ann", NOON + timedelta(minutes=16), Reading(9, GAP))
    driver.run_batch()
    driver.advance_watermark_to(NOON + timedelta(hours=2))
    driver.run_until_idle()
    found = [(attrs.astuple(row.result)[0], row.closed_by) for row in driver.take_rows()]
    assert found == closed
