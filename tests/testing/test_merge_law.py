"""`check_merge_law`: what it finds, what it lets pass, and how it says so."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from hypothesis import strategies as st

from sessionkit import EventTimeGap, Functions, Session, SessionSpec, UserFunctionError
from sessionkit.errors import ExpectationError
from sessionkit.testing.strategies import check_merge_law

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


@attrs.frozen
class View:
    """An event that knows when it happened: `at` is the event time column too."""

    user: str
    at: datetime
    url: str
    seconds: float
    clicks: int | None


@attrs.define
class Visit:
    """A state with a field for every kind of fold."""

    pages: int = 0
    reading: float = 0.0
    share: float = 0.0
    last_url: str = ""
    last_at: datetime = FIRST
    urls: list[str] = attrs.field(factory=list)
    clicks: dict[str, float] = attrs.field(factory=dict)
    path: list[str] = attrs.field(factory=list, eq=False)


@attrs.frozen
class VisitRow:
    """A result that does not matter here."""

    pages: int


def create(key: Any, event: View) -> Visit:
    return update(Visit(last_at=event.at, last_url=event.url), event)


def update(state: Visit, event: View) -> Visit:
    """Add an event, lawfully; `path` is not, but does not count in comparisons."""
    state.pages += 1
    state.reading += event.seconds
    state.share += event.seconds / 3
    state.last_at, state.last_url = max((state.last_at, state.last_url), (event.at, event.url))
    state.urls = sorted({*state.urls, event.url})
    state.clicks[event.url] = state.clicks.get(event.url, 0.0) + (event.clicks or 0) / 3
    state.path.append(event.url)
    return state


def merge(left: Visit, right: Visit) -> Visit:
    last_at, last_url = max((left.last_at, left.last_url), (right.last_at, right.last_url))
    return Visit(
        left.pages + right.pages,
        left.reading + right.reading,
        left.share + right.share,
        last_url,
        last_at,
        sorted({*left.urls, *right.urls}),
        {
            url: left.clicks.get(url, 0.0) + right.clicks.get(url, 0.0)
            for url in (*left.clicks, *right.clicks)
        },
    )


def take_left(left: Visit, right: Visit) -> Visit:
    return left


def take_right(left: Visit, right: Visit) -> Visit:
    return right


def finish(session: Session, state: Visit) -> VisitRow:
    return VisitRow(state.pages)


def _spec(**changes: Any) -> SessionSpec[View, Visit, VisitRow]:
    functions = {
        name: changes.pop(name, default)
        for name, default in {"create": create, "update": update, "merge": merge}.items()
    }
    settings: dict[str, Any] = {"timeout": EventTimeGap("30 minutes"), **changes}
    return SessionSpec(
        keys={"user": str},
        event_time="at",
        logic=Functions(finish=finish, **functions),
        watermark_delay="10 minutes",
        **settings,
    )


def _creating(fold: Callable[[Visit, View], Visit]) -> dict[str, Any]:
    def create_with(key: Any, event: View) -> Visit:
        return fold(Visit(), event)

    return {"create": create_with, "update": fold}


class TestFinds:
    """Folds that depend on how events come."""

    def test_a_merge_that_forgets_a_field_is_found(self) -> None:
        """A merge that leaves a field out is found: an event must come between two sessions."""

        def forgetful(left: Visit, right: Visit) -> Visit:
            return attrs.evolve(merge(left, right), reading=left.reading)

        with pytest.raises(ExpectationError) as failure:
            check_merge_law(_spec(merge=forgetful))

        assert 3 == str(failure.value).count("View(")

    def test_a_create_that_does_less_than_update_is_found(self) -> None:
        """It is found, also where events bring their own gap."""

        def create_empty(key: Any, event: View) -> Visit:
            return attrs.evolve(create(key, event), pages=0)

        gap = EventTimeGap(lambda event: timedelta(hours=1 + len(event.url) % 2), max_gap="2 hours")
        with pytest.raises(ExpectationError):
            check_merge_law(_spec(create=create_empty, timeout=gap))

    def test_events_of_the_callers_choice_find_what_the_default_ones_do_not(self) -> None:
        """Events of the caller's choice find what the default ones do not."""

        def picky(state: Visit, event: View) -> Visit:
            return attrs.evolve(state, last_url=event.url if event.url == "/paid" else "/free")

        spec = _spec(**_creating(picky), merge=take_left)
        urls = st.sampled_from(["/paid", "/free"])
        views = st.builds(View, st.just(""), st.just(FIRST), urls, st.just(0.0), st.none())

        check_merge_law(spec, max_examples=50)
        with pytest.raises(ExpectationError, match="/paid"):
            check_merge_law(spec, views)


class TestPasses:
    """Folds that keep the law."""

    def test_functions_that_keep_the_law_pass(self) -> None:
        """Counts, sums within rounding, maxima by time, sets and dicts, and NaN keep the law."""
        check_merge_law(_spec())

        def not_a_number(state: Visit, event: View) -> Visit:
            return attrs.evolve(state, reading=float("nan"))

        check_merge_law(_spec(**_creating(not_a_number), merge=take_right), max_examples=50)

    def test_a_spec_in_event_time_order_needs_no_merge(self) -> None:
        """In order of event time there is nothing to keep."""

        def last_wins(state: Visit, event: View) -> Visit:
            return attrs.evolve(state, last_url=event.url)

        check_merge_law(_spec(**_creating(last_wins), merge=None, order="event_time"))


class TestSays:
    """The text of a violation."""

    def test_a_finding_shows_two_events_both_states_and_what_to_do(self) -> None:
        """It shows two events, both ways, both states, and what to do: the same each time."""

        def last_wins(state: Visit, event: View) -> Visit:
            return Visit(last_url=event.url)

        texts = []
        for _ in range(2):
            with pytest.raises(ExpectationError) as failure:
                check_merge_law(_spec(**_creating(last_wins), merge=take_right))
            texts.append(str(failure.value))

        assert texts[0] == texts[1]
        text, hint = texts[0].split("\n\nHint: ")
        title, first, second, apart, together = text.splitlines()
        assert title.startswith("the same events give two different Visit")
        # Hypothesis may stop a microsecond from the smallest example.
        assert first.startswith("  micro-batch 1  ''  2026-01-01 00:00:00.00000")
        assert second.startswith("  micro-batch 2  ''  2026-01-01 00:00:00.000000  View(user=''")
        states = apart.removeprefix("  in these 2: "), together.removeprefix("  in one: ")
        assert states[0] != states[1]
        assert all(state.startswith("Visit(pages=0") for state in states)
        assert 'order="event_time"' in hint

    def test_a_function_that_raises_is_the_finding(self) -> None:
        """A function that raises is the finding, with its own text."""

        def refuse(left: Visit, right: Visit) -> Visit:
            message = "cannot merge"
            raise ValueError(message)

        with pytest.raises(UserFunctionError, match="cannot merge"):
            check_merge_law(_spec(merge=refuse))
