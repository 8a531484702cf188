"""What becomes of odd events and of functions that fail, for every kind of both."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from pyspark import cloudpickle

from sessionkit import (
    EventTimeGap,
    Inputs,
    Lateness,
    Memory,
    Session,
    SessionSpec,
    Storage,
    UserFunctionError,
)
from sessionkit.errors import StateValueError
from sessionkit.testing import SessionDriver, at, minutes
from sessionkit.testing.drivers.results import read_output
from sessionkit.testing.drivers.rows import input_frame
from tests.support.packs import run_whole
from tests.support.session_specs import Listed, Open, Reading, collecting, in_order

GAP = timedelta(minutes=10)
SETTINGS: dict[str, Any] = {
    "keys": {"key": str},
    "event_time": "at",
    "gap": GAP,
    "watermark_delay": "0 seconds",
}


def based(**options: Any) -> SessionSpec[Any, Any, Any]:
    return collecting(
        **{"timeout": EventTimeGap(GAP), "storage": Storage(bucket_count=2), **options}
    )


def driven(
    spec: SessionSpec[Any, Any, Any], *events: tuple[str, int, int]
) -> SessionDriver[Any, Any, Any]:
    """Return a driver that has run one batch of (key, minutes after ten, value)."""
    driver = SessionDriver(spec)
    for key, minute, value in events:
        driver.add(key, at("10:00") + minutes(minute), Reading(value, GAP))
    driver.run_batch()
    return driver


def closing(
    spec: SessionSpec[Any, Any, Any], *events: tuple[str, int, int]
) -> SessionDriver[Any, Any, Any]:
    """Return a driver whose sessions have all closed."""
    driver = driven(spec, *events)
    driver.advance_watermark_to(at("2026-01-02 00:00"))
    driver.run_batch()
    return driver


def raising(*_: Any) -> Any:
    message = "no"
    raise RuntimeError(message)


def nothing(*_: Any) -> Any:
    """Forget to return the state."""


@attrs.frozen
class Fixed:
    """A state that cannot be changed in place."""

    total: int = 0


def fail_in(
    role: str, function: Callable[..., Any], **options: Any
) -> SessionDriver[Any, Any, Any]:
    """Run two open sessions, a bridge between them, and the end, with one function replaced."""
    spec = based(**{role: function}, watermark_delay="1 hour", **options)
    driver = driven(spec, ("a", 0, 1), ("a", 15, 2))
    driver.add("a", at("10:08"), Reading(3, GAP))
    driver.run_batch()
    driver.advance_watermark_to(at("2026-01-02 00:00"))
    driver.run_batch()
    return driver


@pytest.mark.parametrize("role", ["create", "update", "merge", "finish"])
def test_a_function_that_raises_is_named_with_the_key(role: str) -> None:
    """The text has role, function, error, key, and the traceback of the user's own line."""
    with pytest.raises(UserFunctionError) as caught:
        fail_in(role, raising)

    text = str(caught.value)
    assert f"`{role}` (" in text
    assert "raised RuntimeError: no, for Key(key='a')" in text
    assert "raise RuntimeError(message)" in text


def nothing_at_first(key: Any, event: Any) -> Any:
    """Return a state for no event that there is."""
    return Fixed() if event is None else None


@pytest.mark.parametrize(
    ("role", "function"),
    [("create", nothing_at_first), ("update", nothing), ("merge", nothing)],
)
def test_a_function_that_forgets_to_return_is_told_so(role: str, function: Any) -> None:
    """None is the wrong type that everybody returns once; a frozen state can't have changed."""
    functions: dict[str, Any] = {
        "create": lambda key, event: Fixed(),
        "update": lambda state, event: Fixed(state.total + 1),
        "merge": lambda left, right: Fixed(left.total + right.total),
        "finish": nothing,
    }
    del functions[role]
    with pytest.raises(UserFunctionError) as caught:
        fail_in(role, function, state=Fixed, **functions)

    assert "must return a Fixed, found NoneType" in str(caught.value)
    assert "Key(key='a')" in str(caught.value)
    assert "Hint: end the function with `return state`" in str(caught.value)


def sometimes(session: Any, state: Any) -> Listed | None:
    """Return a row for some sessions."""
    return Listed(state.values, session.events) if session.events % 2 == 0 else None


def even(session: Any, state: Any) -> Listed:
    """Promise a row for each."""
    return sometimes(session, state)  # type: ignore[return-value]


def several(session: Any, state: Any) -> list[Listed]:
    """Promise a list, which may be empty."""
    row = sometimes(session, state)
    return None if row is None else [row]  # type: ignore[return-value]


def unsaid(session, state):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    """Promise nothing."""
    return sometimes(session, state)


EVENS = [("a", 0, 1), ("a", 5, 2), ("b", 0, 3)]


@pytest.mark.parametrize("memory", [None, Memory(time_to_live="1 day")])
@pytest.mark.parametrize("on_error", ["raise", "reject"])
def test_a_session_without_the_row_that_finish_promises_is_no_row_less(
    on_error: Any, memory: Memory | None
) -> None:
    """`-> Listed` promises a row, so a path without `return` is an error of the function."""
    spec = based(finish=even, on_error=on_error, memory=memory)
    expected = "for Key(key='b'), must return Listed, found NoneType\n\nHint: "
    if on_error == "raise":
        with pytest.raises(UserFunctionError) as caught:
            closing(spec, *EVENS)
        assert expected in str(caught.value)
        return
    driver = closing(spec, *EVENS)
    assert [Listed([1, 2], 2)] == driver.take_results()
    (failed,) = driver.take_rejections("failed_output")
    assert expected in failed.reason


@pytest.mark.parametrize("finish", [sometimes, several, unsaid])
def test_a_session_may_give_no_row_where_the_annotation_allows_it(finish: Any) -> None:
    """None in a union, a list, which may be empty, and no annotation at all."""
    driver = closing(based(finish=finish), *EVENS)

    assert [Listed([1, 2], 2)] == driver.take_results()
    assert (2, 0) == (driver.counts.sessions, driver.counts.failed_output)


@pytest.mark.parametrize("role", ["update", "merge"])
def test_a_new_state_that_is_not_returned_is_not_lost(role: str) -> None:
    """A function annotated with the state returns one, also where that could be changed."""

    def update(state: Open, event: Reading) -> Open:
        made = Open(sorted([*state.values, event.value]))
        return None if role == "update" else made  # type: ignore[return-value]

    def merge(left: Open, right: Open) -> Open:
        made = Open(sorted([*left.values, *right.values]))
        return None if role == "merge" else made  # type: ignore[return-value]

    with pytest.raises(UserFunctionError) as caught:
        fail_in("update", update, merge=merge)

    assert f"`{role}` (" in str(caught.value)
    assert "must return a Open, found NoneType\n\nHint: " in str(caught.value)


def test_the_promise_of_an_annotation_crosses_to_executors_that_lack_its_names() -> None:
    """There an annotation that is a text can't be resolved."""
    names: dict[str, Any] = {"__name__": "of_no_module", "Listed": Listed, "even": even}
    text = "def finish(session, state) -> 'Listed': return even(session, state)"
    exec(text, names)  # noqa: S102 (no module, so it's sent with the names that its body has)
    spec = based(finish=names["finish"])
    sent = cloudpickle.loads(cloudpickle.dumps(spec))  # type: ignore[no-untyped-call]

    assert {"finish", "update", "merge"} == spec.must_return == sent.must_return
    assert "Listed" not in sent.finish.__globals__


@pytest.mark.parametrize(
    ("role", "failed", "failed_output"),
    [("create", 3, 0), ("update", 1, 0), ("merge", 1, 0), ("finish", 0, 1)],
)
def test_failures_are_counted_where_they_are_data(
    role: str, failed: int, failed_output: int
) -> None:
    """Under `on_error="reject"` events fail, or the session whose `finish` raised."""
    driver = fail_in(role, raising, on_error="reject")

    assert failed == len(driver.take_rejections("failed"))
    assert failed_output == len(driver.take_rejections("failed_output"))
    assert (failed, failed_output) == (driver.counts.failed, driver.counts.failed_output)
    assert driver.counts.is_balanced
    # A session whose `finish` raised isn't among those that closed.
    assert driver.counts.sessions == driver.counts.rows == len(driver.take_rows())


def test_finish_may_return_several_rows() -> None:
    """A list gives a row each, under the session's one id."""
    twice = based(finish=lambda session, state: [Listed([n], 1) for n in state.values])

    found = closing(twice, ("a", 0, 1), ("a", 1, 2)).take_rows()

    assert [[1], [2]] == sorted(session.result.values for session in found)
    assert 1 == len({session.session_id for session in found})


def test_a_result_of_the_wrong_type_is_named_with_path_and_key() -> None:
    """The first row that does not fit is found among those of a bucket."""

    def finish(session: Session, state: Open) -> Listed:
        values: Any = ["one"] if session.key.key == "b" else state.values
        return Listed(values, session.events)

    with pytest.raises(UserFunctionError) as caught:
        closing(based(finish=finish, storage=Storage(bucket_count=1)), ("a", 0, 1), ("b", 0, 2))

    assert "for Key(key='b'), returned a row that does not fit" in str(caught.value)
    assert "`Listed.values[0]` must be an int, found str" in str(caught.value)


def test_a_state_of_the_wrong_type_is_named_with_path_and_key() -> None:
    """So is a state that a function spoiled."""

    def create(key: Any, event: Reading) -> Open:
        values: Any = [None] if key.key == "b" else [event.value]
        return Open(values)

    with pytest.raises(StateValueError) as caught:
        driven(based(create=create, storage=Storage(bucket_count=1)), ("a", 0, 1), ("b", 0, 2))

    assert "the state of Key(key='b') does not fit" in str(caught.value)
    assert "`Open.values[0]` must be an int, found NoneType" in str(caught.value)


def own_gap(event: Reading) -> timedelta:
    """Read the gap from the event; fail for one, and return nonsense for another."""
    if event.value == 13:
        message = "unlucky"
        raise ValueError(message)
    wrong: Any = 7
    return wrong if event.value == 14 else event.gap


def with_gaps(*gaps: tuple[int, timedelta], **options: Any) -> SessionDriver[Any, Any, Any]:
    """Run one batch of events of one key, with these values and gaps."""
    spec = based(timeout=EventTimeGap(own_gap, max_gap="1 hour"), **options)
    driver = SessionDriver(spec)
    for value, gap in gaps:
        driver.add("a", at("10:00"), Reading(value, gap))
    driver.run_batch()
    return driver


def test_events_with_an_impossible_gap_are_quarantined() -> None:
    """Zero, negative, and longer than declared."""
    driver = with_gaps((1, minutes(0)), (2, -minutes(1)), (3, minutes(61)), (4, minutes(60)))

    assert [[4]] == [session.state.values for session in driver.open_sessions()]
    assert ["not positive", "not positive", "longer than max_gap=1:00:00"] == sorted(
        (
            found.reason.removeprefix("the gap is ")
            for found in driver.take_rejections("quarantined")
        ),
        reverse=True,
    )


@pytest.mark.parametrize(
    ("value", "text", "raises"),
    [(13, "raised ValueError: unlucky", True), (14, "must return a timedelta, found int", False)],
)
def test_a_gap_function_that_fails_is_named_with_its_event(
    value: int, text: str, raises: bool
) -> None:
    """It stops the query, or fails the event under `on_error="reject"`."""
    with pytest.raises(UserFunctionError, match=text):
        with_gaps((value, GAP))

    driver = with_gaps((value, GAP), (1, GAP), on_error="reject")

    assert [[1]] == [session.state.values for session in driver.open_sessions()]
    (found,) = driver.take_rejections("failed")
    assert text in found.reason
    assert raises == ("ValueError: unlucky" in (found.traceback or ""))


@attrs.define
class Bare:
    """An event, or a state, without a field: only that it happened counts."""

    def update(self, event: "Bare") -> None:
        """Change nothing."""

    def merge(self, other: "Bare") -> None:
        """Change nothing."""

    def finish(self, session: Session) -> Listed:
        return Listed([], session.events)


def test_events_and_states_may_have_no_fields() -> None:
    """The library counts the events of a session itself."""
    driver = SessionDriver(SessionSpec.of(Bare, **SETTINGS))
    for time in ("10:00", "10:00", "10:00:01"):
        driver.add("a", at(time), Bare())
    driver.run_batch()
    driver.advance_watermark_to(at("11:00"))
    driver.run_batch()

    assert [Listed([], 3)] == driver.take_results()


@pytest.mark.parametrize(("judged_by", "expected"), [("event", [[1]]), ("session", [[1, 2]])])
def test_an_event_whose_own_window_is_over_joins_an_open_session_that_it_touches(
    judged_by: Any, expected: list[list[int]]
) -> None:
    """It is late by its own window, and joins by that of the session."""
    driver = driven(based(lateness=Lateness(judged_by=judged_by)), ("a", 0, 1))
    driver.advance_watermark_to(at("10:08"))
    driver.add("a", at("09:57"), Reading(2, GAP))
    driver.run_batch()

    assert expected == [session.state.values for session in driver.open_sessions()]


def test_an_event_at_the_watermark_is_late_in_order() -> None:
    """Under `order="event_time"` its turn has passed; a microsecond later it has not."""
    spec = in_order(EventTimeGap(GAP))
    driver = SessionDriver(spec)
    driver.advance_watermark_to(at("10:00"))
    driver.add("a", at("10:00"), Reading(1, GAP))
    driver.add("a", at("10:00") + timedelta(microseconds=1), Reading(2, GAP))
    with pytest.warns(UserWarning, match="late in the first micro-batch"):
        driver.run_batch()

    assert [at("10:00")] == [found.event_time for found in driver.take_rejections("late")]
    assert 1 == driver.counts.buffered


@attrs.define
class Batch:
    """An event that holds a list, which a careless function may share or change."""

    items: list[str]

    @classmethod
    def create(cls, key: Any, event: "Batch") -> "Batch":
        return cls(event.items)

    def update(self, event: "Batch") -> None:
        if "bad" in event.items:
            raise ValueError
        self.items.extend(event.items)

    def merge(self, other: "Batch") -> None:
        self.items.extend(other.items)


def test_an_event_that_a_function_changed_is_read_anew_for_a_refold() -> None:
    """The state shares the first event's list, and is still as if the bad event had not come."""
    driver = SessionDriver(SessionSpec.of(Batch, on_error="reject", **SETTINGS))
    for minute, item in enumerate(["a", "b", "bad", "c"]):
        driver.add("k", at("10:00") + minutes(minute), Batch([item]))
    driver.run_batch()

    assert [["a", "b", "c"]] == [session.state.items for session in driver.open_sessions()]
    assert (4, 3, 1) == (driver.counts.events, driver.counts.processed, driver.counts.failed)


def test_a_batch_in_order_holds_no_event_back() -> None:
    """The limit of held events is one of a stream; in a batch every turn has come."""
    spec = in_order(EventTimeGap(GAP), inputs=Inputs(max_buffered_per_key=2))
    rows = [
        {"key": "a", "at": at("10:00") + minutes(minute), "value": minute, "gap": GAP}
        for minute in (3, 1, 2, 0)
    ]

    frame = run_whole(spec, input_frame(spec, rows))

    sessions, rejections, counts, _ = read_output(spec, [frame])
    assert [[0, 1, 2, 3]] == [session.result.values for session in sessions]
    assert ([], 4, 0) == (rejections, counts.processed, counts.buffered)


def test_the_limit_of_held_events_holds_in_the_first_micro_batch_too() -> None:
    """Before there is a watermark all wait; those beyond move it, though they're quarantined."""
    driver = SessionDriver(in_order(EventTimeGap(GAP), inputs=Inputs(max_buffered_per_key=2)))
    for minute in (0, 1, 2, 3):
        driver.add("a", at("10:00") + minutes(minute), Reading(minute, GAP))
    driver.run_batch()

    assert (2, 2) == (driver.counts.buffered, driver.counts.quarantined)
    assert at("10:03") == driver.watermark


def test_a_crowded_key_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each process says so the first time, and what to do."""
    # A limit that no other test has: it's said once for each.
    driver = SessionDriver(in_order(EventTimeGap(GAP), inputs=Inputs(max_buffered_per_key=5)))
    for batch in range(2):
        for minute in range(6):
            driver.add("a", at("10:00") + minutes(10 * batch + minute), Reading(batch, GAP))
        driver.run_batch()

    (warning,) = caplog.messages
    assert "more events that wait for the watermark than max_buffered_per_key=5" in warning
    assert "raise it, or read fewer events in a micro-batch" in warning
    assert 2 == driver.counts.quarantined


def test_history_has_no_limit_of_held_events() -> None:
    """A batch that a stream goes on from holds none either."""
    spec = in_order(EventTimeGap(GAP), inputs=Inputs(max_buffered_per_key=2))
    rows = [
        {"key": "a", "at": at("10:00") + minutes(minute), "value": minute, "gap": GAP}
        for minute in range(9)
    ]

    driver = SessionDriver.backfill(spec, rows, until=at("12:00"))

    assert [list(range(9))] == [row.values for row in driver.take_results()]
    assert [] == driver.take_rejections()


def test_the_last_instant_of_the_calendar_is_quarantined() -> None:
    """A session that would end after the year 9999 can't be shown, so its event isn't taken."""
    driver = SessionDriver(based(inputs=Inputs(max_future_skew=None)))
    driver.add("a", datetime(9999, 12, 31, 23, 49, tzinfo=UTC), Reading(1, GAP))
    driver.add("b", datetime(9999, 12, 31, 23, 55, tzinfo=UTC), Reading(2, GAP))
    driver.run_batch()

    assert [[1]] == [session.state.values for session in driver.open_sessions()]
    assert 1 == driver.counts.quarantined
    # What is quarantined for its time moves no watermark; the other event, with its delay, did.
    assert datetime(9999, 12, 31, 23, 49, tzinfo=UTC) == driver.watermark
