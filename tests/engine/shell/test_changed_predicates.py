"""Rules over a checkpoint: a predicate may change, since it's code, and nothing else."""

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import SessionRules, SessionSpec, StateMismatchError
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)


@attrs.frozen
class View:
    page: str


def spec_of(**rules: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.aggregate(
        View,
        {"views": agg.count(), "last": agg.last("page")},
        keys={"user": str},
        event_time="ts",
        timeout=SessionRules("30 minutes", **rules),
        watermark_delay="10 minutes",
        order="event_time" if SessionRules("1s", **rules).in_order else "arrival",
    )


def with_a_view(spec: SessionSpec[Any, Any, Any]) -> SessionDriver[Any, Any, Any]:
    driver = SessionDriver(spec)
    driver.add("ann", NOON, View("/"))
    driver.run_batch()
    return driver


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"extends": pc.field("page") != "/beat"}),
        ({"extends": pc.field("page") != "/beat"}, {}),
        ({"max_events": 9, "until": lambda view: view.page == "/a"}, {"max_events": 9}),
        ({"max_events": 9}, {"max_events": 9, "starts_with": pc.field("page") == "/b"}),
    ],
)
def test_a_predicate_may_change(before: dict[str, Any], after: dict[str, Any]) -> None:
    """An open session goes on, and new events are judged by the new rules."""
    spec = spec_of(**after)
    driver = SessionDriver.restore(spec, with_a_view(spec_of(**before)).snapshot())
    driver.add("ann", NOON + timedelta(minutes=5), View("/beat"))
    driver.run_batch()
    (session,) = driver.open_sessions()
    extends = 0 if "extends" in after else 5
    assert session.state.views == 2
    assert session.end == NOON + timedelta(minutes=30 + extends)


@attrs.define
class Visit:
    views: int = 0

    def update(self, event: View) -> None:
        self.views += 1


def shorter_after_two(visit: Visit) -> timedelta:
    return timedelta(minutes=30 if visit.views < 2 else 5)


@pytest.mark.parametrize(
    ("before", "after", "end"), [(None, shorter_after_two, 15), (shorter_after_two, None, 40)]
)
def test_a_gap_by_the_state_may_change(before: Any, after: Any, end: int) -> None:
    """An open session keeps its end until the next event, whose gap is by the new rule."""
    specs = [
        SessionSpec.of(
            Visit,
            keys={"user": str},
            event_time="ts",
            timeout=SessionRules("30 minutes", max_events=9, state_gap=gap),
            watermark_delay="1 minute",
            order="event_time",
        )
        for gap in (before, after)
    ]
    driver = SessionDriver(specs[0])

    def end_after(minute: int) -> datetime:
        driver.add("ann", NOON + timedelta(minutes=minute), View("/"))
        driver.add("bob", NOON + timedelta(minutes=minute + 2), View("/"))  # moves the watermark
        driver.run_until_idle()
        return next(one.end for one in driver.open_sessions() if one.key.user == "ann")

    assert end_after(0) == NOON + timedelta(minutes=30)
    driver = SessionDriver.restore(specs[1], driver.snapshot())
    assert end_after(10) == NOON + timedelta(minutes=end)


@pytest.mark.parametrize(
    "after", [{"max_duration": "1h"}, {"max_events": 8}, {"changes_of": "page"}]
)
def test_another_rule_is_refused(after: dict[str, Any]) -> None:
    """What is stored follows from it."""
    driver = with_a_view(spec_of(max_events=9))
    with pytest.raises(StateMismatchError, match="rules"):
        SessionDriver.restore(spec_of(**after), driver.snapshot()).open_sessions()
