"""What a driver says that Spark doesn't: a state that is lost, a clock that leaps."""

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from examples.visits import View as PageView
from examples.visits import visits
from sessionkit import (
    Functions,
    KeyState,
    KeyTimes,
    SessionRules,
    SessionSpec,
    TimeToLive,
    UserFunctionError,
)
from sessionkit.testing import SessionDriver, StatefulDriver, at, minutes, seconds
from tests.support.stateful_specs import Added, Amount, Sum, adding, driver_of, summing


@attrs.define(eq=False)
class Total:
    """A state that is compared by identity, with what isn't equal to itself."""

    mean: float
    numbers: list[int] = attrs.field(factory=list)


def doing(act: Callable[..., Any], **changes: Any) -> StatefulDriver[Any, Any, Any]:
    """Return a driver whose `process` does this with state and times."""
    spec = summing(lambda key, events, state, times: act(state, times), **changes)
    return driver_of(spec)


# -- a state that is changed without `set` -------------------------------------------------------


def change(state: KeyState[Sum], times: KeyTimes) -> None:
    state.get(Sum(0)).total += 1


def change_and_set(state: KeyState[Sum], times: KeyTimes) -> None:
    held = state.get(Sum(0))
    held.total += 1
    state.set(held)
    held.total += 1


def change_and_remove(state: KeyState[Sum], times: KeyTimes) -> Added:
    held = state.get(Sum(0))
    held.total += 1
    state.remove()
    return Added("last", held.total)


def read(state: KeyState[Sum], times: KeyTimes) -> Added:
    return Added("is", state.get(Sum(0)).total)


def ask(state: KeyState[Sum], times: KeyTimes) -> None:
    assert state.get(None) is None


@pytest.mark.parametrize("on_error", ["raise", "reject"])
def test_a_state_that_is_changed_without_set_is_refused(on_error: str) -> None:
    """Nothing has changed then, and the micro-batch can run again; a default counts too."""
    driver = doing(change, on_error=on_error)
    driver.add("ann", at("09:00"), Amount(1))
    before = driver.snapshot()
    for _ in range(2):
        with pytest.raises(UserFunctionError, match="`process`.*for Key.key='ann'.*without `set`"):
            driver.run_batch()
    assert before == driver.snapshot()


@pytest.mark.parametrize("act", [change_and_set, change_and_remove, read, ask])
def test_what_spark_stores_is_not_refused(act: Callable[..., Any]) -> None:
    """A state that is set, removed or only read is never lost."""
    driver = doing(act)
    adding(driver, "ann", at("09:00"), 1)
    adding(driver, "ann", at("09:01"), 1)


def test_a_generator_is_watched_to_its_end() -> None:
    """What it does after its first row is part of the call."""

    def act(state: KeyState[Sum], times: KeyTimes) -> Iterator[Added]:
        held = state.get(Sum(0))
        yield Added("so far", held.total)
        held.total += 1

    driver = doing(act)
    driver.add("ann", at("09:00"), Amount(1))
    with pytest.raises(UserFunctionError, match="without `set`"):
        driver.run_batch()


def test_what_would_be_stored_is_compared() -> None:
    """Neither a class without equality nor a NaN is a change; one deep inside is."""

    def keep(state: KeyState[Total], times: KeyTimes) -> None:
        if not state.exists:
            state.set(Total(float("nan")))
        elif len(state.get().numbers) > 5:
            state.get().numbers.append(1)

    def spoil(state: KeyState[Total], times: KeyTimes) -> None:
        state.get(Total(0.0)).numbers.append(1)

    driver = doing(keep, state=Total)
    adding(driver, "ann", at("09:00"), 1)
    adding(driver, "ann", at("09:01"), 1)
    with pytest.raises(UserFunctionError, match="without `set`"):
        adding(doing(spoil, state=Total), "ann", at("09:00"), 1)


def test_the_last_call_of_a_key_may_change_its_state() -> None:
    """A policy has ended the key: nothing is kept of it, so nothing is lost."""

    def count(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        state.set(Sum(len(events)))

    def end(key: Any, name: str, state: KeyState[Sum], times: KeyTimes) -> Added:
        held = state.get()
        held.total += 1
        return Added(name, held.total)

    policy = TimeToLive(minutes(5), clock="event_time")
    driver = driver_of(summing(count, end, timeout=policy))
    adding(driver, "ann", at("09:00"), 1)
    driver.advance_watermark_to(at("10:00"))
    driver.run_batch()
    assert [("time_to_live", 2)] == [(row.what, row.total) for row in driver.take_results()]


def test_a_change_in_on_timer_is_refused() -> None:
    """It is named with its role, and with the name of the function."""

    def act(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        state.set(Sum(1))
        times.set_event_timer("one", at("08:00"))

    def spoil(key: Any, name: str, state: KeyState[Sum], times: KeyTimes) -> None:
        state.get().total += 1

    driver = driver_of(summing(act, spoil))
    adding(driver, "ann", at("09:00"), 1)
    driver.advance_watermark_to(at("09:00"))
    with pytest.raises(UserFunctionError, match="`on_timer`.*spoil.*without `set`"):
        driver.run_batch()


# -- a state that is made anew and not returned --------------------------------------------------


@attrs.define
class Visit:
    pages: int = 0
    urls: list[str] = attrs.field(factory=list)


@attrs.frozen
class View:
    url: str


def with_page(state: Visit, event: Any) -> Visit:
    return attrs.evolve(state, pages=state.pages + 1)


def calls(state, event):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    with_page(state, event)


def appends(state, event):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    if event.url != "/":
        state.urls.append(event.url)


def sets_some(state, event):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    if len(event.url) > 1:
        state.pages += 1


def has_nothing_to_do(state, event):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return


def says_so(state: Visit, event: View) -> None:
    with_page(state, event)


def visits_by(update: Any, merge: Any = None) -> SessionSpec[Any, Any, Any]:
    return SessionSpec(
        logic=Functions(update=update, merge=merge, event=View, state=Visit),
        keys={"user": str},
        event_time="ts",
        timeout="50s",
        watermark_delay="1h",
        order="arrival" if merge else "event_time",
    )


def run_of(update: Any, *urls: str, merge: Any = None) -> SessionDriver[Any, Any, Any]:
    driver = SessionDriver(visits_by(update, merge))
    for minute, url in enumerate(urls):
        driver.add("ann", at("10:00") + minutes(minute), View(url))
        driver.run_batch()
    return driver


def test_an_update_that_changes_nothing_is_told_to_return() -> None:
    """Once, where it has no annotation and calls something that could be it."""
    driver = run_of(calls, "/", "/a")
    driver.advance_watermark_to(at("12:00"))
    driver.run_batch()

    with pytest.warns(UserWarning, match="`update`.*calls. returns nothing, .*all of its 2 calls"):
        assert [0, 0] == [visit.pages for visit in driver.take_results()]
    assert [] == driver.take_results()


def test_a_merge_that_changes_nothing_is_told_to_return() -> None:
    """An event between two open sessions calls it."""
    driver = run_of(appends, "/a", "/c", merge=calls)
    driver.add("ann", at("10:00:30"), View("/b"))
    driver.run_batch()

    with pytest.warns(UserWarning, match="`merge`.*calls. returns nothing, .*its call"):
        assert [["/a", "/b"]] == [session.state.urls for session in driver.open_sessions()]


@pytest.mark.parametrize("update", [sets_some, has_nothing_to_do, says_so])
def test_an_update_that_may_have_nothing_to_do_is_not_told_so(update: Any) -> None:
    """It sets something for other events, calls nothing, or is annotated."""
    assert [0] == [session.state.pages for session in run_of(update, "/").open_sessions()]


def test_an_update_that_has_changed_a_state_is_not_told_so() -> None:
    """One call that did is enough."""
    assert [["/a"]] == [session.state.urls for session in run_of(appends, "/a").open_sessions()]


# -- a clock that leaps --------------------------------------------------------------------------


def closing_idle(**options: Any) -> SessionDriver[Any, Any, Any]:
    """Return a driver with an open session, which closes a second after the last event of all."""
    spec = attrs.evolve(visits, timeout=SessionRules("1 minute", close_idle_after="1 second"))
    driver = SessionDriver(spec, processing_time=at("10:00"), **options)
    driver.add("ann", at("10:00"), PageView(url="/", seconds=1.0))
    driver.run_until_idle()
    return driver


def test_a_clock_that_leaps_over_the_time_to_close_is_warned_of() -> None:
    """The query takes it for a pause, so nothing ever closes; steps within it close the session."""
    driver = closing_idle()
    for _ in range(12):
        driver.advance_processing_time(minutes(1))
        with pytest.warns(UserWarning, match=r"leapt by 1 minute, .*1 second.*\s+Hint: .*steps"):
            driver.run_batch()
    assert [] == driver.take_rows()

    driver.advance_processing_time(seconds(1))
    driver.run_batch()
    assert ["idle"] == [row.closed_by for row in driver.take_rows()]


def test_a_processing_time_before_the_events_is_warned_of() -> None:
    """What would close a session as idle lets the watermark be where events have put it already."""
    spec = attrs.evolve(visits, timeout=SessionRules("1 minute", close_idle_after="1 second"))
    driver = SessionDriver(spec, processing_time=at("09:00"))
    for _ in range(2):
        driver.add("ann", at("10:00"), PageView(url="/", seconds=1.0))
        driver.run_batch()
    driver.advance_processing_time(seconds(1))
    with pytest.warns(UserWarning, match=r"can't close a session: .*\s+Hint: .*processing_time="):
        driver.run_batch()


def test_a_pause_before_a_restart_is_not_warned_of() -> None:
    """Nor is a leap while nothing is open, or of a spec without such a rule."""
    driver = closing_idle()
    driver = SessionDriver.restore(driver.spec, driver.snapshot())
    driver.advance_processing_time(minutes(1))
    driver.run_batch()

    other = SessionDriver(visits, processing_time=at("10:00"))
    for _ in range(2):
        other.advance_processing_time(minutes(1))
        other.add("ann", at("10:00"), PageView(url="/", seconds=1.0))
        other.run_batch()
