"""The time of a session's last event: where it's stored, and where its end says it."""

from typing import Any

import attrs
import pytest

from sessionkit import EventTimeGap, SessionRules, SessionSpec, Storage
from sessionkit._engine.rows.tables import LAST_EVENT
from sessionkit.testing import SessionDriver, at, minutes
from sessionkit.testing.drivers.query import memories_of


@attrs.frozen
class Ping:
    minutes: int = 30
    is_active: bool = True


@attrs.define
class Count:
    events: int = 0

    def update(self, event: Ping) -> None:
        self.events += 1

    def merge(self, other: "Count") -> None:
        self.events += other.events


def active(event: Ping) -> bool:
    return event.is_active


def spec_of(timeout: Any, **options: Any) -> SessionSpec[Any, Any, Any]:
    settings: dict[str, Any] = {"keys": {"user": str}, "event_time": "ts", **options}
    return SessionSpec.of(Count, timeout=timeout, watermark_delay="1 minute", **settings)


FIXED = spec_of(EventTimeGap("30 minutes"))
BY_EVENT = spec_of(EventTimeGap(lambda event: minutes(event.minutes), max_gap="1 hour"))


def opened(spec: SessionSpec[Any, Any, Any]) -> SessionDriver[Any, Any, Any]:
    """Return a driver with a session open since 10:00, whose last event is at 10:10."""
    driver = SessionDriver(spec)
    driver.add("ann", at("10:00"), Ping(45))
    driver.add("ann", at("10:10"), Ping(30))
    driver.run_batch()
    return driver


@pytest.mark.parametrize(
    ("stored", "spec"),
    [
        (False, FIXED),
        (False, spec_of(SessionRules("30 minutes", midnight="Europe/Berlin"))),
        (False, spec_of(SessionRules("30 minutes", max_events=9), order="event_time")),
        (True, BY_EVENT),
        (True, spec_of(SessionRules("30 minutes", extends=active))),
        (
            True,
            spec_of(
                SessionRules("30 minutes", state_gap=lambda state: minutes(30 / state.events)),
                order="event_time",
            ),
        ),
    ],
)
def test_the_last_event_time_is_stored_where_it_does_not_follow_from_the_end(
    stored: bool, spec: SessionSpec[Any, Any, Any]
) -> None:
    """Eight bytes a session there, and none where all events have one gap."""
    (memory,) = memories_of(spec, opened(spec).snapshot())
    assert stored == (LAST_EVENT.name in memory.kept.column_names)
    assert not stored or memory.kept[LAST_EVENT.name].nbytes <= 8 * max(1, memory.kept.num_rows)


@pytest.mark.parametrize("layout", ["buckets", "pages"])
def test_the_option_extends_may_be_added_and_removed(layout: Any) -> None:
    """What is open then has its last event from its end, and what comes later counts."""
    storage = Storage(layout=layout)
    plain = spec_of(SessionRules("30 minutes"), storage=storage)
    extended = spec_of(SessionRules("30 minutes", extends=active), storage=storage)
    driver = SessionDriver.restore(extended, opened(plain).snapshot())
    driver.add("bob", at("10:15"), Ping())
    driver.run_batch()
    driver.add("ann", at("10:35"), Ping(is_active=False))
    driver.run_batch()
    left = driver.snapshot()
    rows = {row.key.user: row for row in ended(driver)}
    assert (at("10:35"), at("10:40")) == (rows["ann"].last_event_time, rows["ann"].session_end)
    assert at("10:15") == rows["bob"].last_event_time
    rows = {row.key.user: row for row in ended(SessionDriver.restore(plain, left))}
    assert at("10:10") == rows["ann"].last_event_time


def test_migration_fills_it_from_one_gap_of_all_events() -> None:
    """It's the end less that gap."""
    (row,) = ended(opened(FIXED).migrate(BY_EVENT))
    assert at("10:10") == row.last_event_time


def ended(driver: SessionDriver[Any, Any, Any]) -> list[Any]:
    driver.advance_watermark_to(at("13:00"))
    driver.run_until_idle()
    return driver.take_rows()
