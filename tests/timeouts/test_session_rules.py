"""The rules that cut sessions: what is read, what is refused, and which of two comes first."""

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import SessionRules, SessionSpec, SpecError, UserFunctionError
from sessionkit import aggregates as agg
from sessionkit.errors import StateError
from sessionkit.testing import SessionDriver
from sessionkit.timeouts._session_rules import CLOSED_BY, RULES

START = datetime(2026, 3, 7, 23, 0, tzinfo=UTC)


@attrs.frozen
class View:
    page: str
    campaign: str | None = None
    is_last: bool = False
    tags: list[str] = attrs.field(factory=list)


@attrs.define
class Visit:
    pages: list[str] = attrs.field(factory=list)

    def update(self, event: View) -> None:
        self.pages.append(event.page)


def short_gap(visit: Visit) -> timedelta:
    return timedelta(minutes=40 - 10 * len(visit.pages))


SETTINGS: dict[str, Any] = {
    "keys": {"user": str},
    "event_time": "ts",
    "watermark_delay": "1 minute",
    "order": "event_time",
}


def spec_of(timeout: Any, **options: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.of(Visit, timeout=timeout, **SETTINGS | options)


def test_rules_read_durations_and_one_name_or_several() -> None:
    """Durations are parsed, and one name may stand for a tuple of them."""
    rules = SessionRules("30 minutes", max_duration="24h", changes_of="campaign")
    assert (rules.gap, rules.longest) == (timedelta(minutes=30), timedelta(minutes=30))
    assert rules.max_duration == timedelta(days=1)
    assert rules.in_order == ("changes_of", "max_duration")
    assert attrs.evolve(rules, gap="20 minutes").gap == timedelta(minutes=20)


def test_every_reason_is_a_rule() -> None:
    """In the order in which they count; no two have one code in a checkpoint."""
    assert tuple(rule.name for rule in RULES) == CLOSED_BY
    assert {rule.code for rule in RULES} == {*range(len(RULES))}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_duration": "-1h"}, "`max_duration` must be longer than zero"),
        ({"max_events": 0}, "`max_events` must be a whole number from 1, found 0"),
        ({"max_events": True}, "`max_events` must be a whole number from 1, found True"),
        ({"max_gap": "1h"}, "`max_gap` needs a gap that is a function"),
        ({"until": "is_lost"}, "`until` is 'is_lost', and View has no field `is_lost`"),
        ({"until": "page"}, "`until` is 'page', and `View.page` is not a bool"),
        ({"opens_with": "page"}, "`opens_with` is 'page', and `View.page` is not a bool"),
        ({"max_duration_inclusive": 1}, "`max_duration_inclusive` must be True or False"),
        ({"extends": pc.field("page")}, "neither true nor false"),
        ({"starts_with": lambda: True}, "`starts_with` must take starts_with(event)"),
        ({"state_gap": lambda: True}, "`state_gap` must take state_gap(state)"),
        ({"state_gap": "page"}, "`state_gap` must be a function, found 'page'"),
        ({"changes_of": "campain"}, "`changes_of` names `campain`, and View has no such field"),
        ({"changes_of": "tags"}, "`changes_of` names `View.tags`, whose values can't be compared"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(options: dict[str, Any], expected: str) -> None:
    """A rule that can't work is an error on the driver, with what to write."""
    with pytest.raises((SpecError, SpecError)) as refused:
        spec_of(SessionRules("30 minutes", **options))
    assert expected in str(refused.value)
    assert "\n\nHint: " in str(refused.value)


def test_a_gap_by_the_state_needs_a_function_and_a_longest_gap() -> None:
    """A function of yours, all of whose events it has, and one gap that is the longest."""
    with pytest.raises(SpecError, match="pass the longest gap as `gap`, a duration"):
        SessionRules(lambda view: timedelta(1), max_gap="1h", state_gap=short_gap)
    settings = {**SETTINGS, "timeout": SessionRules("30 minutes", state_gap=short_gap)}
    with pytest.raises(SpecError, match="a spec of aggregates has no state class"):
        SessionSpec.aggregate(View, {"pages": agg.count()}, **settings)
    with pytest.raises(SpecError, match="a spec of events has no state class"):
        SessionSpec.per_event(View, **settings)


def visits(driver: SessionDriver[Any, Any, Any], *minutes: float) -> list[tuple[Any, ...]]:
    """Let a user view pages, then let all sessions end; return their pages, ends and reasons."""
    for minute in minutes:
        driver.add("ann", START + timedelta(minutes=minute), View(str(minute)))
    driver.run_batch()
    driver.advance_watermark_to(START + timedelta(days=1))
    driver.run_until_idle()
    return [
        (row.result.pages, (row.session_end - START).total_seconds() / 60, row.closed_by)
        for row in driver.take_rows()
    ]


def test_a_value_is_known_beyond_micro_batches_that_say_nothing() -> None:
    """The last one that was there counts, and a null is none."""
    spec = spec_of(SessionRules("30 minutes", changes_of="campaign"))
    driver = SessionDriver(spec)
    for minute, campaign in enumerate(["a", None, "a", None, "b"]):
        driver.add("ann", START + timedelta(minutes=minute), View(str(minute), campaign))
        driver.run_batch()
        driver.advance_watermark_to(START + timedelta(minutes=minute))
        driver.run_batch()

    assert [["4"]] == [session.state.pages for session in driver.open_sessions()]
    assert [["0", "1", "2", "3"]] == [row.result.pages for row in driver.take_rows()]


def test_a_gap_of_the_state_goes_on_with_sessions_in_order_only() -> None:
    """Whose events came as they may, an open session may get an older one."""
    after = spec_of(SessionRules("30 minutes", state_gap=short_gap))
    for order in ("arrival", "event_time"):
        driver = SessionDriver(spec_of("30 minutes", order=order, merge=lambda left, right: left))
        driver.add("ann", START, View("/"))
        driver.run_batch()
        if order == "arrival":
            with pytest.raises(StateError, match="`state_gap` needs .* in order"):
                driver.migrate(after)
        else:
            assert after == driver.migrate(after).spec


def test_a_gap_that_raises_names_its_function() -> None:
    """Not `update`, which was called before it."""
    rules = SessionRules("30 minutes", state_gap=lambda visit: timedelta(hours=1) / 0)
    with pytest.raises(UserFunctionError, match="`state_gap` .* raised ZeroDivisionError"):
        visits(SessionDriver(spec_of(rules)), 0)


def test_a_stored_session_keeps_its_end_until_its_next_event() -> None:
    """The function may have changed since: the end of an open session stays until an event."""

    def only_for_many(visit: Visit) -> timedelta:
        if len(visit.pages) == 1:
            raise ValueError(visit.pages)
        return timedelta(minutes=10)

    rules = SessionRules("30 minutes", state_gap=short_gap)
    driver = SessionDriver(spec_of(rules))
    driver.add("ann", START, View("0"))
    driver.add("bob", START + timedelta(minutes=2), View("moves the watermark"))
    driver.run_until_idle()
    changed = spec_of(attrs.evolve(rules, state_gap=only_for_many), on_error="reject")
    driver = SessionDriver.restore(changed, driver.snapshot())
    found = visits(driver, 20, 25, 50)
    assert (["0", "20", "25"], 35, "gap") in found
    # The last one and that of the other user begin sessions.
    assert [one.kind for one in driver.take_rejections()] == ["failed", "failed"]


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (30, "must return a timedelta, found int"),
        (timedelta(0), "must return a gap longer than zero, found 0:00:00"),
        (timedelta(hours=1), "must return no gap longer than `gap`, 0:30:00, found 1:00:00"),
    ],
)
def test_a_gap_that_cannot_be_is_a_failure(returned: Any, expected: str) -> None:
    """Of the event that led to the state; without it, the session goes on as if it hadn't come."""

    def failing(visit: Visit) -> Any:
        return returned if visit.pages[-1] == "10" else timedelta(minutes=15)

    rules = SessionRules("30 minutes", state_gap=failing)
    driver = SessionDriver(spec_of(rules, on_error="reject"))
    assert visits(driver, 0, 10, 16) == [(["0"], 15, "gap"), (["16"], 31, "gap")]
    (rejection,) = driver.take_rejections()
    assert rejection.kind == "failed"
    assert "`state_gap` (" in rejection.reason
    assert expected in rejection.reason
    with pytest.raises(UserFunctionError) as raised:
        visits(SessionDriver(spec_of(rules)), 0, 10)
    assert expected in str(raised.value)
    assert "Key: " in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {"max_duration": "1h"},
        {"max_events": 10},
        {"until": "is_last"},
        {"starts_with": "is_last"},
        {"changes_of": "campaign"},
    ],
)
def test_rules_that_need_an_order_say_so(options: dict[str, Any]) -> None:
    """Functions and aggregates alike: a fold can't be undone."""
    name = next(iter(options))
    rules = SessionRules("30 minutes", **options)
    with pytest.raises(
        SpecError, match=f'`{name}` depends on .*\n\nHint: write order="event_time"'
    ):
        spec_of(rules, order="arrival", merge=lambda left, right: left)
    settings = {**SETTINGS, "timeout": rules}
    with pytest.raises(SpecError, match=f"`{name}` depends on"):
        SessionSpec.aggregate(View, {"pages": agg.count()}, **settings | {"order": "arrival"})
    assert rules == SessionSpec.aggregate(View, {"pages": agg.count()}, **settings).rules


@pytest.mark.parametrize("order", ["arrival", "event_time"])
def test_what_opens_a_session_needs_no_order_and_may_have_one(order: Any) -> None:
    """With aggregates too, whose order is refused where it changes nothing."""
    rules = SessionRules("30 minutes", opens_with="is_last")
    assert () == rules.in_order
    settings = {**SETTINGS, "timeout": rules, "order": order}
    assert rules == SessionSpec.aggregate(View, {"pages": agg.count()}, **settings).rules


@pytest.mark.parametrize("name", ["until", "starts_with", "opens_with", "extends"])
def test_a_predicate_may_be_an_expression(name: str) -> None:
    """Rules with equal expressions are equal, and a spec takes them."""
    one, same = (SessionRules("30 minutes", **{name: pc.field("page") == "/bye"}) for _ in range(2))
    other = SessionRules("30 minutes", **{name: pc.field("page") == "/hello"})
    assert (one, hash(one)) == (same, hash(same))
    assert one != other
    assert spec_of(one).rules == same
