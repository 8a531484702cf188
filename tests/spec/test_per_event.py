"""Specs with a row for each event: which columns there are, and what is refused."""

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from sessionkit import SessionRules, SessionSpec, SpecError
from sessionkit.testing import SessionDriver
from tests.support.refusals import refusal, says

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
RULES: dict[str, Any] = {"keys": {"user": str}, "event_time": "ts", "watermark_delay": "10 minutes"}


@attrs.frozen
class View:
    page: str
    seconds: int | None = None


@attrs.frozen
class WithKeyAndTime:
    """An event whose fields are also the key and the time."""

    user: str
    page: str
    ts: datetime


def names_of(spec: SessionSpec[Any, Any, Any]) -> list[str]:
    return [field.name for field in spec.result_fields]


def test_the_columns_of_a_row() -> None:
    """The key and the session come first; then the number, the time and the fields."""
    spec = SessionSpec.per_event(View, gap="30m", **RULES)
    session = ["session_id", "session_start", "session_end", "last_event_time"]
    assert names_of(spec) == ["user", *session, "number", "ts", "page", "seconds"]


def test_no_column_comes_twice() -> None:
    """A field that is the key, or the time, is one column of the row."""
    spec = SessionSpec.per_event(WithKeyAndTime, timeout=SessionRules("30m"), **RULES)
    session = ["session_id", "session_start", "session_end", "last_event_time", "closed_by"]
    assert names_of(spec) == ["user", *session, "number", "page", "ts"]

    driver = SessionDriver(spec)
    driver.add("ann", NOON, WithKeyAndTime("ann", "/", NOON))
    driver.run_batch()
    driver.advance_watermark_to(NOON + timedelta(hours=1))
    driver.run_until_idle()
    (row,) = driver.take_results()
    assert (row.number, row.page, row.ts) == (1, "/", NOON)


@attrs.frozen
class Numbered:
    number: int


@pytest.mark.parametrize(
    ("event", "rules"),
    [(Numbered, {}), (View, {"event_time": "number"}), (View, {"keys": {"number": int}})],
    ids=["field", "time", "key"],
)
def test_a_column_of_the_name_of_the_number_is_refused(
    event: type[Any], rules: dict[str, Any]
) -> None:
    """Only one of the two would be in the row."""
    text = refusal(SessionSpec.per_event, event, gap="30m", **RULES | rules)
    assert says(text, "`number` numbers", "they have such a column", "rename the column")


def test_numbers_go_on_over_micro_batches_and_bridges() -> None:
    """An event between two sessions makes them one, numbered in the order of time."""
    driver = SessionDriver(SessionSpec.per_event(View, gap="30m", **RULES))
    for minutes, page in [(0, "a"), (35, "c"), (20, "b")]:
        driver.add("ann", NOON + timedelta(minutes=minutes), View(page))
        driver.run_batch()
    driver.advance_watermark_to(NOON + timedelta(hours=2))
    driver.run_until_idle()
    frame = driver.take_frame()
    assert [(1, "a"), (2, "b"), (3, "c")] == [*zip(frame["number"], frame["page"], strict=True)]
    assert 1 == frame["session_id"].nunique()


@pytest.mark.parametrize("name", ["t s", "class", "self", "t's", 't"', "a.b", "1st", ""])
def test_a_time_that_cannot_be_a_field_is_refused(name: str) -> None:
    """A row has the time under its column's name, and code is written with it."""
    with pytest.raises(SpecError, match="Hint: ") as refused:
        SessionSpec.per_event(View, gap="30m", **RULES | {"event_time": name})

    assert "`event_time`" in str(refused.value)


@pytest.mark.parametrize("name", ["_ts", "__ts", "é", "match", "cls"])
def test_a_time_may_have_any_name_of_a_field(name: str) -> None:
    """Also one that attrs would shorten to the name of another field's argument."""
    event = attrs.make_class("Event", {"ts": attrs.field(type=str)})
    rules: dict[str, Any] = RULES | {"event_time": name}
    driver: Any = SessionDriver(SessionSpec.per_event(event, gap="30m", **rules))
    driver.add("ann", NOON, event("a"))
    driver.run_batch()
    driver.advance_watermark_to(NOON + timedelta(hours=1))
    driver.run_batch()
    (row,) = driver.take_results()

    assert (NOON, "a") == (getattr(row, name), row.ts)


def test_a_class_that_changes_events_is_refused() -> None:
    """No event is built, so a converter would not run."""
    changing = attrs.make_class("Changing", {"page": attrs.field(type=str, converter=str.lower)})
    with pytest.raises(SpecError, match=r"`Changing.page` has a converter, and without functions"):
        SessionSpec.per_event(changing, gap="30m", **RULES)


def test_a_new_field_of_the_event_reads_held_events_with_its_default() -> None:
    """What a checkpoint holds outlives a change of the class, as any state does."""
    before = attrs.make_class("View", {"page": attrs.field(type=str)})
    old: SessionSpec[Any, Any, Any] = SessionSpec.per_event(before, gap="30m", **RULES)
    driver = SessionDriver(old)
    driver.add("ann", NOON, before("a"))
    driver.run_batch()
    spec = SessionSpec.per_event(View, gap="30m", **RULES)
    again = SessionDriver.restore(spec, driver.snapshot())
    again.add("ann", NOON + timedelta(minutes=1), View("b", 3))
    again.run_batch()
    held = again.open_sessions()[0].state.events
    assert [(event.page, event.seconds) for event in held] == [("a", None), ("b", 3)]
