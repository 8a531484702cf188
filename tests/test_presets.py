"""The presets: which sessions each makes, and GA4's engaged ones."""

import json
from datetime import timedelta
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import Session, SessionRules, SessionSpec, SpecError, StateMismatchError, presets
from sessionkit import aggregates as agg
from sessionkit._engine.shell.storage import logic_of
from sessionkit.testing import SessionDriver, at, minutes, seconds
from tests.support.options import grouped

MICRO = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
HALF = minutes(30)


@attrs.frozen
class View:
    kind: str = "view"
    campaign: str | None = None


IS_VIEW = pc.field("kind") == "view"
IS_KEY = pc.field("kind") == "buy"


def spec_of(rules: SessionRules, **aggregates: Any) -> SessionSpec[View, Any, Any]:
    """Return a spec of aggregates under some rules."""
    order = {"order": "event_time"} if rules.in_order else {}
    settings: dict[str, Any] = {"keys": {"user": str}, "event_time": "ts", **order}
    return SessionSpec.aggregate(
        View,
        {"events": agg.count(), **aggregates},
        **grouped(timeout=rules, watermark_delay="1m", **settings),
    )


def rows_of(spec: SessionSpec[Any, Any, Any], views: list[tuple[timedelta, View]]) -> list[Any]:
    """Return the rows of the sessions of views, by their times after a midnight of UTC."""
    driver = SessionDriver(spec)
    for time, view in views:
        driver.add("ann", at("2026-03-08 00:00") + time, view)
    driver.run_batch()
    driver.advance_watermark_to(at("2026-04-01 00:00"))
    driver.run_until_idle()
    return driver.take_rows()


@pytest.mark.parametrize(
    ("rules", "views", "expected"),
    [
        pytest.param(presets.ga4(), [0 * HOUR, HALF], [(2, "gap")], id="ga4"),
        pytest.param(presets.ga4(), [0 * HOUR, HALF + MICRO], [(1, "gap")] * 2, id="ga4 idle"),
        pytest.param(presets.ga4("1 hour"), [0 * HOUR, HOUR], [(2, "gap")], id="ga4 set"),
        pytest.param(presets.ga4(), [23.9 * HOUR, 24.1 * HOUR], [(2, "gap")], id="ga4 at midnight"),
        pytest.param(
            presets.universal_analytics(zone="UTC"),
            [23.9 * HOUR, 24.1 * HOUR],
            [(1, "midnight"), (1, "gap")],
            id="universal analytics",
        ),
        pytest.param(
            # On that day, midnight in New York comes at 4:00 UTC: one hour is left out.
            presets.universal_analytics(zone="America/New_York"),
            [24 * HOUR, 27.9 * HOUR, 28 * HOUR],
            [(1, "gap"), (1, "midnight"), (1, "gap")],
            id="universal analytics elsewhere",
        ),
        pytest.param(presets.posthog(), [0 * HOUR, HALF], [(2, "gap")], id="posthog"),
        pytest.param(
            presets.posthog(),
            [n * HALF for n in range(50)],
            [(49, "max_duration"), (1, "gap")],
            id="posthog after a day",
        ),
        pytest.param(presets.segment(), [0 * HOUR, HALF], [(2, "gap")], id="segment"),
        pytest.param(presets.segment(), [0 * HOUR, 1.01 * HALF], [(1, "gap")] * 2, id="segment no"),
        pytest.param(presets.snowplow(), [0 * HOUR, 1.01 * HALF], [(1, "gap")] * 2, id="snowplow"),
        pytest.param(
            presets.snowplow(),
            [n * (HALF - MICRO) for n in range(90)],
            [(90, "gap")],
            id="snowplow for long",
        ),
        pytest.param(presets.amplitude(), [0 * HOUR, HALF / 2], [(2, "gap")], id="amplitude"),
        pytest.param(
            presets.amplitude("mobile"), [0 * HOUR, HALF / 2], [(1, "gap")] * 2, id="mobile"
        ),
        pytest.param(
            presets.amplitude("mobile", gap="1 hour"), [0 * HOUR, HALF], [(2, "gap")], id="set"
        ),
    ],
)
def test_the_sessions_of_a_preset(
    rules: SessionRules, views: list[timedelta], expected: list[Any]
) -> None:
    """How many events each session has, and what ended it."""
    rows = rows_of(spec_of(rules), [(time, View()) for time in views])
    assert expected == [(row.result.events, row.closed_by) for row in rows]


@pytest.mark.parametrize(
    ("rules", "sessions"),
    [
        pytest.param(presets.ga4(), 1, id="ga4"),
        pytest.param(presets.universal_analytics(zone="UTC"), 1, id="universal analytics"),
        pytest.param(presets.posthog(), 1, id="posthog"),
        pytest.param(presets.segment(), 1, id="segment"),
        pytest.param(presets.snowplow(), 2, id="snowplow"),
        pytest.param(presets.amplitude(), 1, id="amplitude"),
        pytest.param(presets.amplitude("mobile"), 2, id="amplitude on a mobile"),
        pytest.param(presets.amplitude("mobile", gap="1 hour"), 2, id="another gap on a mobile"),
    ],
)
def test_an_event_exactly_one_gap_later_is_where_the_product_puts_it(
    rules: SessionRules, sessions: int
) -> None:
    """It belongs to the session, or starts the next one; a microsecond tells them apart."""
    gap = rules.longest
    found = [
        len(rows_of(spec_of(rules), [(0 * HOUR, View()), (gap + off, View())]))
        for off in (-MICRO, 0 * MICRO, MICRO)
    ]
    assert [1, sessions, 2] == found


def test_a_campaign_starts_a_session_of_universal_analytics() -> None:
    """Direct views stay with the session; another campaign, or a first one, doesn't."""
    rules = presets.universal_analytics(zone="UTC", campaign="campaign")
    campaigns = [None, "spring", None, "spring", "sale"]
    views = [(minutes(n), View(campaign=name)) for n, name in enumerate(campaigns)]

    rows = rows_of(spec_of(rules), views)

    assert [(1, "changes_of"), (3, "changes_of"), (1, "gap")] == [
        (row.result.events, row.closed_by) for row in rows
    ]


def test_a_preset_may_be_changed_field_by_field() -> None:
    """It's a value, and checked as any other rules."""
    changed = attrs.evolve(presets.posthog(), gap="1 hour", max_duration=None, midnight="UTC")
    assert changed == SessionRules("1 hour", midnight="UTC")
    with pytest.raises(SpecError, match="`midnight` must be the name of a time zone"):
        presets.universal_analytics(zone="Mars/Olympus")


@attrs.define
class Visit:
    """A state by functions that knows what makes a session engaged."""

    views: int = 0
    buys: int = 0
    events: int = 0

    def update(self, event: View) -> None:
        self.events += 1
        self.views += event.kind == "view"
        self.buys += event.kind == "buy"

    def merge(self, other: "Visit") -> None:
        self.events += other.events
        self.views += other.views
        self.buys += other.buys

    def finish(self, session: Session) -> "Engaged":
        lasted = session.end - session.start - HALF
        engaged = presets.ga4_is_engaged(lasted, page_views=self.views, key_events=self.buys)
        return Engaged(self.events, engaged)


@attrs.frozen
class Engaged:
    """The row of a session by functions."""

    events: int
    engaged: bool


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([(0, "view")], False, id="a view"),
        pytest.param([(0, "view"), (10, "scroll")], False, id="ten seconds"),
        pytest.param([(0, "view"), (11, "scroll")], True, id="longer than ten seconds"),
        pytest.param([(11, "scroll"), (0, "view")], True, id="in any order"),
        pytest.param([(0, "view"), (0, "view")], True, id="two views"),
        pytest.param([(5, "buy")], True, id="a key event"),
    ],
)
def test_engaged_sessions(events: list[tuple[int, str]], expected: bool) -> None:
    """By the aggregate and by functions: longer than ten seconds, a key event, or two views."""
    engaged = presets.ga4_engaged(page_view=IS_VIEW, key_event=IS_KEY)
    functions = SessionSpec.of(
        Visit, keys={"user": str}, event_time="ts", timeout=presets.ga4(), watermark_delay="1m"
    )
    views = [(seconds(time), View(kind)) for time, kind in events]

    for spec in (spec_of(presets.ga4(), engaged=engaged), functions):
        (row,) = rows_of(spec, views)
        assert expected == row.result.engaged


def test_what_makes_a_session_engaged_may_be_set() -> None:
    """The time may be another one, and no event need be a key event."""
    engaged = presets.ga4_engaged(page_view=IS_VIEW, longer_than="1 minute")
    spec = spec_of(presets.ga4(), engaged=engaged)
    (row,) = rows_of(spec, [(seconds(0), View("buy")), (seconds(60), View("buy"))])
    assert not row.result.engaged
    assert presets.ga4_is_engaged(seconds(61), page_views=0, longer_than="1 minute")


def test_what_is_no_condition_is_refused() -> None:
    """The message names the part of the aggregate."""
    with pytest.raises(SpecError, match="`engaged.page_views`: `where` is 'knd', .* no field"):
        spec_of(presets.ga4(), engaged=presets.ga4_engaged(page_view="knd"))
    with pytest.raises(SpecError, match="`longer_than`"):
        presets.ga4_engaged(page_view=IS_VIEW, longer_than="soon")


def test_the_time_may_change_over_a_checkpoint_and_the_parts_may_not() -> None:
    """How long a session lasted is stored; key events that nobody counted aren't."""
    spec = spec_of(presets.ga4(), engaged=presets.ga4_engaged(page_view=IS_VIEW))
    driver = SessionDriver(spec)
    for time in (0, 20):
        driver.add("ann", at("10:00") + seconds(time), View("scroll"))
    driver.run_batch()

    shown = []
    for options in ({}, {"longer_than": "30 seconds"}, {"key_event": IS_KEY}):
        engaged = presets.ga4_engaged(page_view=IS_VIEW, **options)
        again = SessionDriver.restore(spec_of(presets.ga4(), engaged=engaged), driver.snapshot())
        if options.keys() == {"key_event"}:
            with pytest.raises(StateMismatchError, match="aggregate `engaged` is 'engaged"):
                again.open_sessions()
        else:
            (session,) = again.open_sessions()
            shown.append(session.state.engaged)
    assert [True, False] == shown


def test_what_a_checkpoint_remembers_of_engaged_sessions() -> None:
    """Checkpoints written before `holds` was public have the same columns and the same text."""
    engaged = presets.ga4_engaged(page_view=IS_VIEW, key_event=IS_KEY)
    spec = spec_of(presets.ga4(), engaged=engaged)

    identity = json.loads(logic_of(spec).program.identity)

    parts = ["engaged.lasted", "engaged.page_views", "engaged.key_events"]
    assert f"engaged({', '.join(parts)}), None" == identity["aggregates"]["engaged"]
    assert set(parts) == identity["state"].keys()
