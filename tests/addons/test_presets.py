"""The presets: which sessions each makes, and GA4's engaged ones."""

from datetime import datetime, timedelta
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import SessionRules, SessionSpec, SpecError
from sessionkit import aggregates as agg
from sessionkit.addons import presets
from sessionkit.testing import SessionDriver, at, minutes, seconds

MICRO = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
HALF = minutes(30)


@attrs.frozen
class View:
    kind: str = "view"


IS_VIEW = pc.field("kind") == "view"
IS_KEY = pc.field("kind") == "buy"


def spec_of(rules: SessionRules, **aggregates: Any) -> SessionSpec[View, Any, Any]:
    """Return a spec of aggregates under some rules."""
    order = {"order": "event_time"} if rules.in_order else {}
    settings: dict[str, Any] = {"keys": {"user": str}, "event_time": "ts", **order}
    return SessionSpec.aggregate(
        View, {"events": agg.count(), **aggregates}, timeout=rules, watermark_delay="1m", **settings
    )


def rows_of(spec: SessionSpec[Any, Any, Any], views: list[tuple[timedelta, View]]) -> list[Any]:
    """Return the rows of the sessions of views, by their times after a midnight of UTC."""
    return run(spec, [(at("2026-03-08 00:00") + time, view) for time, view in views])


def run(spec: SessionSpec[Any, Any, Any], events: list[tuple[datetime, Any]]) -> list[Any]:
    """Return the rows of the sessions of events."""
    driver = SessionDriver(spec)
    for time, event in events:
        driver.add("ann", time, event)
    driver.run_batch()
    driver.advance_watermark_to(at("2026-04-01 00:00"))
    driver.run_until_idle()
    return driver.take_rows()


@pytest.mark.parametrize(
    ("rules", "views", "expected"),
    [
        pytest.param(presets.ga4(), [23.9 * HOUR, 24.1 * HOUR], [(2, "gap")], id="ga4 at midnight"),
        pytest.param(
            presets.posthog(),
            [n * HALF for n in range(50)],
            [(49, "max_duration"), (1, "gap")],
            id="posthog after a day",
        ),
        pytest.param(
            presets.posthog(opens_with=pc.field("kind") != "view"),
            [0 * HALF],
            [],
            id="posthog outside any session",
        ),
        pytest.param(
            presets.snowplow(),
            [n * (HALF - MICRO) for n in range(90)],
            [(90, "gap")],
            id="snowplow for long",
        ),
        pytest.param(
            presets.snowplow_unified("2 days"),
            [0 * HOUR, 48 * HOUR, 48 * HOUR + MICRO],
            [(2, "max_duration"), (1, "gap")],
            id="snowplow unified",
        ),
    ],
)
def test_the_sessions_of_a_preset(
    rules: SessionRules, views: list[timedelta], expected: list[Any]
) -> None:
    """How many events each session has, and what ended it; gaps are below."""
    rows = rows_of(spec_of(rules), [(time, View()) for time in views])
    assert expected == [(row.result.events, row.closed_by) for row in rows]


@pytest.mark.parametrize(
    ("rules", "sessions"),
    [
        pytest.param(presets.ga4(), 1, id="ga4"),
        pytest.param(presets.ga4("1 hour"), 1, id="ga4, another gap"),
        pytest.param(presets.posthog(), 1, id="posthog"),
        pytest.param(presets.segment(), 1, id="segment"),
        pytest.param(presets.snowplow(), 2, id="snowplow"),
        pytest.param(presets.amplitude(), 1, id="amplitude"),
        pytest.param(presets.amplitude("mobile"), 2, id="amplitude on a mobile"),
        pytest.param(presets.amplitude("mobile", gap="1 hour"), 2, id="another gap on a mobile"),
        pytest.param(presets.snowplow_unified(), 1, id="snowplow unified"),
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


@pytest.mark.parametrize(
    ("rules", "times", "sessions"),
    [
        # Amplitude-Kotlin's AmplitudeSessionTest, where the gap is 100 milliseconds.
        pytest.param(
            presets.amplitude("mobile", gap="100 ms"),
            ["00:00:01", "00:00:01.050"],
            [2],
            id="amplitude, close",
        ),
        pytest.param(
            presets.amplitude("mobile", gap="100 ms"),
            ["00:00:01", "00:00:02"],
            [1, 1],
            id="amplitude, distant",
        ),
        # Amplitude-TypeScript's session.test.ts.
        pytest.param(presets.amplitude(), ["10:00", "11:00"], [1, 1], id="amplitude on the web"),
        # dbt-snowplow-unified's integration tests: collector_tstamp by domain_sessionid.
        pytest.param(
            # The package drops the second session.
            presets.snowplow_unified(),
            [
                "2021-03-01 21:39:43.815",
                "2021-03-02 21:39:43.871",
                "2021-03-03 21:39:50.989",
                "2021-03-04 21:39:50.989",
                "2021-03-05 21:39:51.022",
                "2021-03-06 21:40:46.189",
            ],
            [3, 3],
            id="snowplow unified, quarantined",
        ),
    ],
)
def test_the_published_cases_of_a_product(
    rules: SessionRules, times: list[str], sessions: list[int]
) -> None:
    """The product says itself how many events its sessions have."""
    rows = run(spec_of(rules), [(at(time), View()) for time in times])
    assert sessions == [row.result.events for row in rows]


@attrs.frozen
class Hit:
    """An event that knows its time; of PostHog, so perhaps a read-only one."""

    ts: datetime
    read_only: bool = False


@attrs.define
class Replay:
    """A state by functions that knows when a user last did something."""

    events: int = 0
    active_at: datetime | None = None
    last_at: datetime | None = None

    def update(self, event: Hit) -> None:
        self.events += 1
        if self.active_at is None or not event.read_only:
            self.active_at = event.ts
        self.last_at = event.ts


def left_of_gap(state: Replay) -> timedelta:
    """Return what is left of half an hour since a user did something."""
    assert state.active_at is not None
    assert state.last_at is not None
    return max(HALF - (state.last_at - state.active_at), MICRO)


def replays(rules: SessionRules) -> SessionSpec[Hit, Replay, Any]:
    return SessionSpec.of(
        Replay,
        keys={"user": str},
        event_time="ts",
        timeout=rules,
        watermark_delay="1m",
        order="event_time",
    )


def test_read_only_events_of_posthog() -> None:
    """One without a session starts one with a `state_gap`, and is one with `extends`."""
    hits = [
        Hit(at("10:00"), read_only=True),
        Hit(at("10:01"), read_only=True),
        Hit(at("10:02")),
    ]
    rules = presets.posthog()

    for timeout, expected in (
        (attrs.evolve(rules, state_gap=left_of_gap), [3]),
        (attrs.evolve(rules, extends=lambda hit: not hit.read_only), [1, 1, 1]),
    ):
        rows = run(replays(timeout), [(hit.ts, hit) for hit in hits])
        assert expected == [row.result.events for row in rows]


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
def test_a_session_is_engaged_by_its_length_a_key_event_or_two_views(
    events: list[tuple[int, str]], expected: bool
) -> None:
    """Longer than ten seconds, a key event, or two views."""
    engaged = presets.ga4_engaged(page_view=IS_VIEW, key_event=IS_KEY)
    views = [(seconds(time), View(kind)) for time, kind in events]
    (row,) = rows_of(spec_of(presets.ga4(), engaged=engaged), views)
    assert expected == row.result.engaged


def test_what_makes_a_session_engaged_may_be_set() -> None:
    """The time may be another one, and no event need be a key event."""
    engaged = presets.ga4_engaged(page_view=IS_VIEW, longer_than="1 minute")
    spec = spec_of(presets.ga4(), engaged=engaged)
    (row,) = rows_of(spec, [(seconds(0), View("buy")), (seconds(60), View("buy"))])
    assert not row.result.engaged


def test_what_is_no_condition_is_refused() -> None:
    """The message names the field and the condition."""
    with pytest.raises(SpecError, match="`engaged`: `where` is 'knd', .* no field"):
        spec_of(presets.ga4(), engaged=presets.ga4_engaged(page_view="knd"))
    with pytest.raises(SpecError, match="`longer_than`"):
        presets.ga4_engaged(page_view=IS_VIEW, longer_than="soon")
