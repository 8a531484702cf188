"""The presets: which sessions each makes, and GA4's engaged ones."""

import inspect
import json
from datetime import datetime, timedelta
from random import Random
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
    session_id: str | None = None


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


def cut(rules: SessionRules, *views: str | tuple[str, View]) -> list[tuple[int, str]]:
    """Return how many events each session has, and what ended it; views by their times."""
    first = at("2026-03-08 00:00")
    timed = [(view, View()) if isinstance(view, str) else view for view in views]
    rows = rows_of(spec_of(rules), [(at(time) - first, view) for time, view in timed])
    return [(row.result.events, row.closed_by) for row in rows]


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
        pytest.param(
            presets.snowplow_unified("2 days"),
            [0 * HOUR, 48 * HOUR, 48 * HOUR + MICRO],
            [(2, "max_duration"), (1, "gap")],
            id="snowplow unified",
        ),
        pytest.param(
            presets.matomo(zone="UTC"),
            [n * seconds(1) for n in range(10_001)],
            [(10_000, "max_events"), (1, "gap")],
            id="matomo with many actions",
        ),
        pytest.param(
            presets.mixpanel(zone="America/New_York"),
            [24 * HOUR, 27.9 * HOUR, 28 * HOUR],
            [(1, "gap"), (1, "midnight"), (1, "gap")],
            id="mixpanel elsewhere",
        ),
        pytest.param(
            presets.tealium(),
            [n * 0.9 * HALF for n in range(55)],
            [(54, "max_duration"), (1, "gap")],
            id="tealium after a day",
        ),
        pytest.param(
            presets.adobe_analytics(),
            [n * HALF for n in range(26)],
            [(25, "max_duration"), (1, "gap")],
            id="adobe after half a day",
        ),
        pytest.param(
            presets.adobe_analytics(),
            [n * seconds(1) for n in range(2_501)],
            [(2_500, "max_events"), (1, "gap")],
            id="adobe with many hits",
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
        pytest.param(presets.snowplow_unified(), 1, id="snowplow unified"),
        pytest.param(presets.matomo(zone="UTC"), 2, id="matomo"),
        pytest.param(presets.mixpanel(zone="UTC"), 1, id="mixpanel"),
        pytest.param(presets.tealium(), 2, id="tealium"),
        pytest.param(presets.adobe_analytics(), 1, id="adobe"),
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
        # https://support.google.com/analytics/answer/2731565: a lunch break, and a midnight.
        pytest.param(
            presets.universal_analytics(zone="UTC"), ["14:04", "14:35"], [1, 1], id="ua at lunch"
        ),
        pytest.param(
            presets.universal_analytics(zone="UTC"),
            ["2025-08-14 23:50", "2025-08-15 00:10"],
            [1, 1],
            id="ua at midnight",
        ),
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
            presets.snowplow_unified(),
            [
                "2021-03-02 23:57:04.708",
                "2021-03-02 23:57:07.557",
                "2021-03-03 00:17:16.091",
                "2021-03-03 00:29:41.467",
                "2021-03-03 00:38:38.169",
                "2021-03-03 00:43:51.139",
                "2021-03-03 00:43:54.914",
                "2021-03-03 00:47:49.411",
            ],
            [8],
            id="snowplow unified, an hour",
        ),
        pytest.param(
            presets.snowplow_unified(),
            [
                "2021-03-02 15:55:18.542",
                "2021-03-02 15:55:23.357",
                "2021-03-03 15:55:26.046",
                "2021-03-03 15:55:26.260",
                "2021-03-04 15:55:27.085",
            ],
            [5],
            id="snowplow unified, two days",
        ),
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
        # Matomo's VisitRequestProcessorTest.
        pytest.param(
            presets.matomo(zone="UTC"),
            ["2012-01-02 08:08:34", "2012-01-02 08:12:45"],
            [2],
            id="matomo, within the visit",
        ),
        pytest.param(
            presets.matomo(zone="UTC"),
            ["2012-01-02 08:08:34", "2012-01-02 09:12:45"],
            [1, 1],
            id="matomo, after the visit",
        ),
        pytest.param(
            presets.matomo(zone="UTC"),
            ["2012-01-01 23:59:58", "2012-01-01 23:59:59"],
            [2],
            id="matomo, one day",
        ),
        pytest.param(
            presets.matomo(zone="UTC"),
            ["2012-01-01 23:59:58", "2012-01-02 00:00:01"],
            [1, 1],
            id="matomo, two days",
        ),
        # https://docs.mixpanel.com/docs/features/sessions: "Session Timeout" and its examples.
        pytest.param(
            presets.mixpanel(zone="UTC", gap="15 minutes"),
            ["10:00", "10:14", "10:30"],
            [2, 1],
            id="mixpanel, timeout",
        ),
        pytest.param(
            presets.mixpanel(zone="UTC"),
            ["13:00", "13:10", "13:50", "14:10", "14:25"],
            [2, 3],
            id="mixpanel, example 1",
        ),
        pytest.param(
            presets.mixpanel(zone="UTC"),
            ["2026-03-08 23:30", "2026-03-08 23:50", "2026-03-09 00:05", "2026-03-09 00:10"],
            [2, 2],
            id="mixpanel, example 2",
        ),
        # Adobe's page "Visits", and its older definition of the metric.
        pytest.param(
            presets.adobe_analytics(),
            ["2026-03-09 23:45", "2026-03-10 00:10"],
            [2],
            id="adobe over midnight",
        ),
        pytest.param(presets.adobe_analytics(), ["10:00", "10:05"], [2], id="adobe, back soon"),
        pytest.param(presets.adobe_analytics(), ["10:00", "10:35"], [1, 1], id="adobe, 35 minutes"),
    ],
)
def test_the_published_cases_of_a_product(
    rules: SessionRules, times: list[str], sessions: list[int]
) -> None:
    """The product says itself how many events its sessions have."""
    assert sessions == [events for events, _ in cut(rules, *times)]


def test_sessions_of_mixpanel_by_a_property() -> None:
    """The examples of Mixpanel's page, by the rules that the docstring names."""
    rules = SessionRules("25 hours", midnight="UTC", changes_of="session_id")
    first, second = (View(session_id=name) for name in ("123", "456"))

    over_midnight = [("2026-03-08 23:15", second), ("2026-03-08 23:45", second)]
    after_midnight = [("2026-03-09 00:15", second), ("2026-03-09 00:30", second)]
    assert [(2, "midnight"), (2, "midnight")] == cut(rules, *over_midnight, *after_midnight)

    another_id = [("11:00", first), ("11:15", second), ("12:15", second)]
    assert [(1, "changes_of"), (2, "midnight")] == cut(rules, *another_id)


def test_a_campaign_starts_a_visit_of_matomo() -> None:
    """As in Matomo's fixture; unlike there, also in a visit that began without one."""
    rules = presets.matomo(zone="UTC", campaign="campaign")
    direct, goal, another = (View(campaign=name) for name in (None, "goal", "another goal"))

    assert [(1, "changes_of"), (1, "gap")] == cut(rules, ("10:18", goal), ("10:24", another))
    assert [(1, "changes_of"), (1, "gap")] == cut(rules, ("10:00", direct), ("10:06", goal))
    assert [(3, "gap")] == cut(rules, ("10:00", goal), ("10:06", direct), ("10:12", goal))


@attrs.define
class Count:
    """A state by functions that counts events."""

    events: int = 0

    def update(self, event: View) -> None:
        self.events += 1


@pytest.mark.parametrize(
    ("gap", "times", "expected"),
    [
        pytest.param("30 minutes", [0, 9], [2], id="a second event"),
        pytest.param("30 minutes", [0, 10], [1, 1], id="a single event"),
        pytest.param("30 minutes", [0, 9, 38], [3], id="two events wait for 30 minutes"),
        pytest.param("30 minutes", [0, 9, 39], [2, 1], id="and not longer"),
        pytest.param("30 minutes", [0, 0, 29], [3], id="two events of one instant"),
        pytest.param("2 minutes", [0, 1, 3], [2, 1], id="a shorter gap"),
    ],
)
def test_a_visit_of_tealium_with_a_single_event_is_over_sooner(
    gap: str, times: list[int], expected: list[int]
) -> None:
    """After 10 minutes, where the spec says how many events a state has."""
    spec = SessionSpec.of(
        Count,
        keys={"user": str},
        event_time="ts",
        timeout=presets.tealium(gap, events=lambda state: state.events),
        watermark_delay="1m",
        order="event_time",
    )
    rows = rows_of(spec, [(minutes(time), View()) for time in times])
    assert expected == [row.result.events for row in rows]


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


def posthogs(hits: list[Hit]) -> list[int]:
    """Return the events of each of PostHog's sessions, where a timer ends each idle one."""
    found: list[int] = []
    start = active = at("2000-01-01 00:00")
    for hit in hits:
        is_new = hit.ts - active > HALF or hit.ts - start > 24 * HOUR
        if is_new:
            start = hit.ts
            found.append(0)
        if is_new or not hit.read_only:
            active = hit.ts
        found[-1] += 1
    return found


def test_read_only_events_of_posthog() -> None:
    """One without a session starts one with a `state_gap`, and is one with `extends`."""
    hits = [
        Hit(at("10:00"), read_only=True),
        Hit(at("10:01"), read_only=True),
        Hit(at("10:02")),
    ]
    settings: dict[str, Any] = {"keys": {"user": str}, "event_time": "ts", "order": "event_time"}
    rules = presets.posthog()

    for timeout, expected in (
        (attrs.evolve(rules, state_gap=left_of_gap), [3]),
        (attrs.evolve(rules, extends=lambda hit: not hit.read_only), [1, 1, 1]),
    ):
        spec = SessionSpec.of(Replay, timeout=timeout, watermark_delay="1m", **settings)
        driver = SessionDriver(spec)
        for hit in hits:
            driver.add("ann", hit.ts, hit)
        driver.run_batch()
        driver.advance_watermark_to(at("12:00"))
        driver.run_until_idle()
        assert expected == [row.result.events for row in driver.take_rows()]


@pytest.mark.parametrize("seed", range(10))
def test_a_state_gap_makes_the_sessions_of_posthog(seed: int) -> None:
    """Random streams of read-only and other events, some of them longer than a day."""
    random = Random(seed)
    time, hits = at("2026-03-08 00:00"), []
    farthest = (minutes(3), minutes(40))[seed % 2]
    for _ in range(1_200):
        time += seconds(random.randint(1, int(farthest.total_seconds())))
        hits.append(Hit(time, read_only=random.choice((True, True, False))))
    spec = SessionSpec.of(
        Replay,
        keys={"user": str},
        event_time="ts",
        timeout=attrs.evolve(presets.posthog(), state_gap=left_of_gap),
        watermark_delay="1m",
        order="event_time",
    )
    driver = SessionDriver(spec)
    for hit in hits:
        driver.add("ann", hit.ts, hit)
    driver.run_batch()
    driver.advance_watermark_to(at("2026-04-01 00:00"))
    driver.run_until_idle()
    assert posthogs(hits) == [row.result.events for row in driver.take_rows()]


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


def test_every_preset_names_its_source() -> None:
    """The docstring has its address, or names the preset whose rule it is."""
    documented = {name: inspect.getdoc(getattr(presets, name)) or "" for name in presets.__all__}
    silent = {name for name, text in documented.items() if "Source" not in text}
    assert {"ga4_is_engaged"} == silent
    assert "see `ga4_engaged`" in documented["ga4_is_engaged"]
