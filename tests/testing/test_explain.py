"""`explain_session`: which session has which events, why, and what lets it close, in words."""

import html
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.visits import View, Visit, visits
from sessionkit import Inputs, Lateness, SessionRules, SessionSpec, UserFunctionError
from sessionkit import aggregates as agg
from sessionkit.errors import DriverError
from sessionkit.testing import SessionDriver, at, explain_session, minutes
from sessionkit.testing.explain import ExplainedSession, Explanation
from sessionkit.testing.generators import Arrival
from sessionkit.testing.literals import plain_key
from sessionkit.testing.strategies import timelines

PAGE = View(url="/", seconds=1.0)
LOGIC: Any = visits.logic
MILLISECOND = timedelta(milliseconds=1)


@attrs.frozen
class Click:
    """An event of which rules can read everything, with its own time."""

    ts: datetime
    ends: bool = False
    begins: bool = False
    keeps: bool = True
    campaign: str | None = None


def clicks(timeout: Any, **options: Any) -> SessionSpec[Any, Any, Any]:
    in_order = isinstance(timeout, SessionRules) and timeout.in_order
    settings: dict[str, Any] = {"watermark_delay": "10 minutes", **options}
    return SessionSpec.aggregate(
        Click,
        {"clicks": agg.count()},
        keys={"user": str},
        event_time="ts",
        timeout=timeout,
        order="event_time" if in_order else "arrival",
        **settings,
    )


def pages(*times: str) -> list[tuple[datetime, View]]:
    return [(at(time), PAGE) for time in times]


def broken(state: Visit, event: View) -> Visit:
    if event.url == "/broken":
        msg = "no such page"
        raise LookupError(msg)
    return state


# -- sessions ----------------------------------------------------------------------------------


def test_an_open_session_says_what_lets_it_close() -> None:
    """When it's over, by which rule, how far the watermark has to go, and which event moves it."""
    (session,) = explain_session(visits, "ann", pages("10:00", "10:20")).sessions
    assert session.is_open
    assert (at("10:00"), at("10:50")) == (session.session_start, session.session_end)
    assert ((at("10:00"), PAGE), (at("10:20"), PAGE)) == session.events
    assert (at("10:50"), "gap") == (session.closes, session.closed_by)
    assert "no event for 30 minutes" == session.why
    assert (minutes(40), at("11:00")) == (session.to_go, session.closing_event_time)


def test_the_event_that_it_names_closes_it_and_an_earlier_one_does_not() -> None:
    """Of whatever key."""
    arrived = [("ann", *pages("10:00")[0])]
    (session,) = explain_session(visits, "ann", arrived).sessions
    moves = session.closing_event_time
    assert moves is not None
    for event_time, is_open in [(moves - MILLISECOND, True), (moves, False)]:
        after = explain_session(visits, "ann", [*arrived, ("bob", event_time, PAGE)])
        assert [is_open] == [one.is_open for one in after.sessions]
        assert (("bob", event_time),) == after.others


@pytest.mark.parametrize(
    ("expected", "rules", "events"),
    [
        (
            ("10:10", "until", "an event ends it"),
            SessionRules("30 minutes", until="ends"),
            [("10:10", {"ends": True})],
        ),
        (
            ("10:15", "max_duration", "it has lasted 15 minutes"),
            SessionRules("30 minutes", max_duration="15 minutes"),
            [("10:10", {})],
        ),
        (
            ("18:30", "midnight", "midnight in Asia/Kolkata"),
            SessionRules("13 hours", midnight="Asia/Kolkata"),
            [("18:20", {})],
        ),
    ],
    ids=["until", "max_duration", "midnight"],
)
def test_an_explanation_names_the_rule_that_closes_a_session(
    expected: tuple[str, str, str], rules: SessionRules, events: list[tuple[str, dict[str, Any]]]
) -> None:
    """With the instant at which it fires, and what it says."""
    closes, rule, why = expected
    arrived = [Click(at("10:00")), *(Click(at(time), **some) for time, some in events)]
    found = explain_session(clicks(rules), "ann", arrived)
    first = found.sessions[0]
    assert (at(closes), rule, why) == (first.closes, first.closed_by, first.why)
    assert f"over at {closes}, by `{rule}`: {why}\n" in str(found)


def test_what_an_idle_source_closes_is_told() -> None:
    """The processing time needn't be known: it stands still."""
    spec = clicks(SessionRules("30 minutes", close_idle_after="5 minutes"))
    found = explain_session(spec, "ann", [Click(at("10:00"))])
    assert [True] == [session.is_open for session in found.sessions]
    said = "nothing has moved the watermark for 5 minutes of processing time"
    assert said == found.idle
    assert f"or it closes by `idle`, once {said}\n" in str(found)
    assert "idle" not in str(explain_session(visits, "ann", pages("10:00")))


# -- what no session took ----------------------------------------------------------------------


def test_a_late_event_says_by_which_watermark() -> None:
    """And belongs to no session."""
    event = View(url="/late", seconds=1.0)
    found = explain_session(visits, "ann", [*pages("10:00", "11:05"), (at("10:20"), event)])
    (late,) = found.rejected
    assert ("late", at("10:20"), event) == (late.kind, late.event_time, late.event)
    assert at("10:55") == late.watermark
    assert "event time + gap is at or before the watermark" in late.reason
    assert [1, 1] == [len(session.events) for session in found.sessions]
    assert "late    10:20, its own window is over" in str(found)
    assert "        the watermark was at 10:55 when it came" in str(found)


def test_a_duplicate_is_the_copy_and_not_the_first() -> None:
    """It's told with its reason, and the session has the other one."""
    spec = clicks("30 minutes", inputs=Inputs(drop_duplicates_for="0 seconds"))
    first, copy = Click(at("10:00")), Click(at("10:00"))
    found = explain_session(spec, "ann", [first, copy])
    (duplicate,) = found.rejected
    assert "duplicate" == duplicate.kind
    assert duplicate.event is copy
    assert [[(at("10:00"), first)]] == [list(session.events) for session in found.sessions]
    assert "duplicate" in str(found)


def test_an_explanation_says_why_events_are_quarantined() -> None:
    """One without a time, and one from the future where there is a processing time."""
    arrived: list[Any] = [(None, PAGE), *pages("10:00", "2099-01-01 00:00")]
    found = explain_session(visits, "ann", arrived, processing_time=at("10:00"))
    assert ["quarantined", "quarantined"] == [one.kind for one in found.rejected]
    assert [None, at("2099-01-01 00:00")] == [one.event_time for one in found.rejected]
    assert [True] == [session.is_open for session in found.sessions]
    assert "quarantined  2099-01-01 00:00, " in str(found)


def test_an_event_that_fails_is_in_no_session() -> None:
    """Under `on_error="reject"`; the error is the reason."""
    spec = attrs.evolve(visits, logic=attrs.evolve(LOGIC, update=broken), on_error="reject")
    failing = View("/broken", 1.0)
    found = explain_session(spec, "ann", [*pages("10:00"), (at("10:10"), failing)])
    (failed,) = found.rejected
    assert ("failed", failing) == (failed.kind, failed.event)
    assert "no such page" in str(found)
    assert [1] == [len(session.events) for session in found.sessions]
    with pytest.raises(UserFunctionError, match="no such page"):
        explain_session(attrs.evolve(spec, on_error="raise"), "ann", [(at("10:10"), failing)])


# -- words and the picture in text -------------------------------------------------------------


def test_without_events_there_is_only_a_sentence() -> None:
    """In a notebook too."""
    found = explain_session(visits, "ann", [])
    expected = "no sessions of 'ann', none of them open; there is no watermark yet (times in UTC)"
    assert expected == str(found)
    assert f"<pre>{html.escape(expected)}</pre>" == found._repr_html_()


def test_many_events_are_counted_and_the_first_six_listed() -> None:
    """The first six are listed."""
    found = explain_session(visits, "ann", pages(*(f"10:{minute:02}" for minute in range(9))))
    assert "9 events: 10:00, 10:01, 10:02, 10:03, 10:04, 10:05, and 3 more\n" in str(found)


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("given_event", [PAGE, (PAGE,), "10:00"])
def test_an_event_without_its_time_is_refused(given_event: Any) -> None:
    """The message shows how to write one."""
    with pytest.raises(DriverError, match="must come with its time"):
        explain_session(visits, "ann", [given_event])


# -- agreement with the driver -----------------------------------------------------------------


SPECS: dict[str, SessionSpec[Any, Any, Any]] = {
    "arrival": clicks("10 minutes"),
    "by session": clicks("10 minutes", lateness=Lateness(judged_by="session")),
    "midnight": clicks(SessionRules("10 minutes", midnight="UTC")),
    "in order": clicks(
        SessionRules(
            "10 minutes",
            max_duration="25 minutes",
            max_events=3,
            until="ends",
            starts_with="begins",
            changes_of="campaign",
            extends="keeps",
        )
    ),
}
arrivals = {name: timelines(spec, max_size=8) for name, spec in SPECS.items()}


def run(
    spec: SessionSpec[Any, Any, Any], arrived: Sequence[Arrival], watermark: datetime
) -> SessionDriver[Any, Any, Any]:
    """Run the same events on a driver, one a micro-batch."""
    driver = SessionDriver(spec)
    for arrival in arrived:
        driver.add(*arrival)
        driver.run_batch()
    driver.advance_watermark_to(max(watermark, driver.watermark or watermark))
    driver.run_until_idle()
    return driver


def shown(session: ExplainedSession) -> tuple[Any, ...]:
    """Return what a driver says of a session too."""
    return session.session_id, session.session_start, session.session_end, session.closed_by


@pytest.mark.parametrize("name", SPECS)
@given(data=st.data())
def test_an_explanation_has_the_sessions_of_the_driver(name: str, data: st.DataObject) -> None:
    """Its sessions are those that the driver closes or keeps open, each event is somewhere."""
    spec, arrived = SPECS[name], data.draw(arrivals[name])
    key, far = arrived[0].key, data.draw(st.integers(0, 90))
    watermark = datetime(2026, 1, 1, tzinfo=UTC) + minutes(far)
    driver = run(spec, arrived, watermark)
    rows = [row for row in driver.take_rows() if plain_key(row.key) == plain_key(key)]
    opened = [one for one in driver.open_sessions() if plain_key(one.key) == plain_key(key)]
    rejected = [one for one in driver.take_rejections() if plain_key(one.key) == plain_key(key)]

    found: Explanation = explain_session(spec, key, arrived, watermark=watermark)

    closed = [session for session in found.sessions if not session.is_open]
    still = [session for session in found.sessions if session.is_open]
    assert [
        (row.session_id, row.session_start, row.session_end, row.closed_by) for row in rows
    ] == [*map(shown, closed)]
    assert [row.result.clicks for row in rows] == [len(session.events) for session in closed]
    assert [
        (one.session_id, one.session_start, one.session_end, one.closed_by) for one in opened
    ] == [*map(shown, still)]
    assert [one.events for one in opened] == [len(session.events) for session in still]
    assert [one.closes for one in opened] == [session.closes for session in still]
    assert driver.watermark == found.watermark
    assert [(one.kind, one.event_time) for one in rejected] == [
        (one.kind, one.event_time) for one in found.rejected
    ]
    own = [arrival.event_time for arrival in arrived if arrival.key == key]
    taken = [time for session in found.sessions for time, _ in session.events]
    assert sorted(own) == sorted([*taken, *(one.event_time for one in rejected if one.event_time)])
    for session in found.sessions:
        assert session.session_start == session.events[0][0]
        assert all(
            session.session_start <= time <= session.session_end for time, _ in session.events
        )
        if session.to_go is not None:
            assert session.to_go > timedelta(0)
