"""`check_spec`: what it finds, what it lets pass, and how it says so."""

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import attrs
import pytest
from hypothesis import strategies as st

from examples.devices.spec import sensors
from examples.logins.spec import LOGINS
from examples.visits import visits
from sessionkit import (
    EventTimeGap,
    Functions,
    KeyState,
    KeyTimes,
    ProcessingTimeGap,
    Session,
    SessionSpec,
    StatefulSpec,
)
from sessionkit.errors import ExpectationError
from sessionkit.testing import minutes
from sessionkit.testing.strategies import check_spec
from tests.support.stateful_specs import Added, Amount, Sum, summing

FEW, FEWEST = 20, 8


@attrs.define
class Click:
    page: str
    number: int


@attrs.define
class Visit:
    clicks: int = 0
    last: str = ""


@attrs.frozen(eq=False)
class Row:
    """A result that is compared by identity."""

    clicks: int
    mark: float = 0.0


def update(state: Visit, event: Click) -> None:
    state.clicks += 1


def merge(left: Visit, right: Visit) -> None:
    left.clicks += right.clicks


def finish(session: Session[Any], state: Visit) -> Row:
    return Row(state.clicks)


CLICKS: SessionSpec[Click, Visit, Row] = SessionSpec(
    keys={"user": str},
    event_time="at",
    logic=Functions(update=update, merge=merge, finish=finish),
    timeout=EventTimeGap("30 minutes"),
    watermark_delay="10 minutes",
)


def clicks(**functions: Any) -> SessionSpec[Click, Visit, Row]:
    """Return the spec with some of its functions changed."""
    return attrs.evolve(CLICKS, logic=attrs.evolve(CLICKS.logic, **functions))


IN_ORDER = attrs.evolve(CLICKS, logic=Functions(update=update, finish=finish), order="event_time")


def sets(key: Any, events: Any, state: KeyState[Sum], times: KeyTimes) -> None:
    """Keep nothing but how many events the last call had."""
    state.set(Sum(len(events)))


def sums(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> Iterator[Added]:
    """Keep a sum, and give a row a call: what comes out depends on the cut, the state doesn't."""
    state.set(Sum(state.get(Sum()).total + sum(event.number for event in events)))
    yield Added("so far", state.get().total)


def said(spec: Any, **options: Any) -> str:
    with pytest.raises(ExpectationError) as found:
        check_spec(spec, max_examples=FEW, **options)
    return str(found.value)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(visits, id="sessions"),
        pytest.param(CLICKS, id="rows without equality"),
        pytest.param(IN_ORDER, id="in time order"),
        pytest.param(LOGINS, id="keys"),
        pytest.param(sensors(silence=minutes(5)), id="keys by processing time"),
        pytest.param(summing(sums), id="a row a call"),
        pytest.param(summing(sums, timeout=ProcessingTimeGap("5 minutes")), id="a policy"),
        pytest.param(summing(sets, order="event_time"), id="one event a call"),
    ],
)
def test_nothing_is_found_where_nothing_is_wrong(spec: Any) -> None:
    """The examples of both kinds pass, and so do rows that depend on how many calls there were."""
    check_spec(spec, max_examples=FEWEST)


def test_a_function_that_fails_is_found() -> None:
    """With the fewest events for which it does, and its traceback."""

    def broken(key: Any, event: Click) -> Visit:
        if event.number < 0:
            msg = "there are no such clicks"
            raise ValueError(msg)
        return Visit(1)

    text = said(clicks(create=broken))
    assert "something in this SessionSpec will go wrong on a stream" in text
    assert "1. a function fails, and the query stops:\n  micro-batch 1  " in text
    assert "number=-1" in text
    assert "ValueError: there are no such clicks" in text
    assert "\n\nHint: " in text
    check_spec(
        clicks(create=broken),
        st.builds(Click, st.just("/"), st.integers(1, 9)),
        max_examples=FEW,
    )


def test_a_failure_that_the_spec_handles_is_no_finding() -> None:
    """Under `on_error="reject"` the query goes on, as its author wants it."""

    def broken(state: Visit, event: Click) -> None:
        msg = "never"
        raise LookupError(msg)

    check_spec(attrs.evolve(clicks(update=broken), on_error="reject"), max_examples=FEW)


NUMBERS = count()


@pytest.mark.parametrize("chance", [random.random, lambda: float(next(NUMBERS))])
def test_what_differs_from_run_to_run_is_found(chance: Callable[[], float]) -> None:
    """Such as a random number, or what another call has left."""

    def shuffled(session: Session[Any], state: Visit) -> Row:
        return Row(state.clicks, chance())

    text = said(clicks(finish=shuffled))
    assert "1. the same events give two results:\n  micro-batch 1  " in text
    assert text.count("Row(clicks=1, mark=") == 2


def test_a_merge_that_depends_on_the_order_is_found() -> None:
    """As by `check_merge_law`, with what else is wrong."""

    def last(state: Visit, event: Click) -> None:
        state.last = event.page

    def shuffled(session: Session[Any], state: Visit) -> Row:
        return Row(state.clicks, random.random())

    text = said(clicks(update=last, finish=shuffled))
    assert "2 things in this SessionSpec" in text
    assert "1. the same events give two results" in text
    assert "2. the same events give two different Visit, by the order in which they arrive" in text


WITHOUT_TIMES: StatefulSpec[Any, Any, Any] = StatefulSpec(
    keys={"key": str},
    event=Amount,
    state=Sum,
    result=Added,
    process=sets,
    timeout=ProcessingTimeGap("5 minutes"),
)


@pytest.mark.parametrize("spec", [summing(sets), WITHOUT_TIMES], ids=["times", "no times"])
def test_a_state_that_depends_on_the_cut_is_found(spec: Any) -> None:
    """How events fall into micro-batches is chance; without event times no watermark moves."""
    text = said(spec)
    assert "1. another cut into micro-batches gives another state:\n  micro-batch 1  " in text
    assert "in these 2: [(Key(key=" in text
    assert "in one: [(Key(key=" in text


def clicked(state: Visit) -> Visit:
    return Visit(state.clicks + 1)


def test_a_new_state_that_is_not_returned_is_found() -> None:
    """Where another function makes it, only a run shows it."""

    def forgets(state, event):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        clicked(state)

    spec = attrs.evolve(IN_ORDER, logic=Functions(update=forgets, event=Click, state=Visit))
    assert "forgets) returns nothing, and has left its state as it was in all of" in said(spec)


def test_a_state_that_is_lost_is_found() -> None:
    """The driver refuses it, and so does the check."""

    def loses(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        held = state.get(Sum())
        held.total += 1
        if not events:
            state.set(held)

    assert "changed the state that `get` gave it without `set`" in said(summing(loses))
