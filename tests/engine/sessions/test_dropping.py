"""Sessions that are dropped whole, under `on_error="drop_session"`: what goes, and what is told."""

from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest

from sessionkit import SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.testing import Rejection, SessionDriver, at
from tests.support.options import grouped
from tests.support.session_specs import fed, opened

GAP = timedelta(minutes=10)
LARGEST = 2**63 - 1


@attrs.frozen
class Step:
    """An event: its number; functions fail over a negative one."""

    number: int
    begins: bool = False


@attrs.define
class Path:
    numbers: list[int] = attrs.field(factory=list)

    def update(self, event: Step) -> None:
        """Add a number, then fail over it if it's negative."""
        self.numbers.append(event.number)
        if event.number < 0:
            message = "negative"
            raise ValueError(message)

    def merge(self, other: "Path") -> None:
        self.numbers += other.numbers


def spec_of(**changes: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.of(Path, **grouped(**settings(**changes)))


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "keys": {"key": str},
        "event_time": "ts",
        "event": Step,
        "timeout": GAP,
        "watermark_delay": "10 hours",
        "on_error": "drop_session",
        **changes,
    }


def dropped(driver: SessionDriver[Any, Any, Any]) -> tuple[list[datetime | None], Rejection]:
    """Return the times of the events that failed, and the session."""
    failed = [one.event_time for one in driver.take_rejections("failed")]
    (session,) = driver.take_rejections("failed_output")
    return failed, session


def test_a_session_goes_with_what_is_stored_of_it() -> None:
    """It's told with its bounds, its id, the culprit, and how many events are gone with it."""
    driver = fed(SessionDriver(spec_of()), ("10:00", Step(1)), ("10:30", Step(2)))
    (first, _) = driver.open_sessions()

    fed(driver, ("10:05", Step(3)), ("10:08", Step(-4)), ("10:09", Step(5)))

    assert [[2]] == opened(driver)
    failed, session = dropped(driver)
    assert [at("10:05"), at("10:08"), at("10:09")] == failed
    assert (first.id, at("10:00"), at("10:19")) == (
        session.session_id,
        session.session_start,
        session.session_end,
    )
    assert session.reason == (
        "dropped with 4 events, 1 of them folded before: "
        "`update` (tests.engine.sessions.test_dropping.Path.update) raised ValueError: negative, "
        f"for Key(key='a'), over the event of {at('10:08').isoformat()}"
    )
    assert "in update" in (session.traceback or "")
    assert (2, 3, 1) == (driver.counts.processed, driver.counts.failed, driver.counts.failed_output)


def test_each_event_says_why_its_session_is_dropped() -> None:
    """The culprit is named in all of them, with the traceback."""
    driver = fed(SessionDriver(spec_of()), ("10:00", Step(1)), ("10:01", Step(-2)))

    reasons = {(one.reason, one.traceback) for one in driver.take_rejections("failed")}

    ((reason, traceback),) = reasons
    assert reason.startswith("its session is dropped: `update` (")
    assert reason.endswith(f"over the event of {at('10:01').isoformat()}")
    assert "raise ValueError(message)" in (traceback or "")


def test_later_events_begin_a_new_session() -> None:
    """Nothing is remembered of one that was dropped."""
    driver = fed(SessionDriver(spec_of()), ("10:00", Step(1)), ("10:05", Step(-2)))

    fed(driver, ("10:01", Step(3)), ("10:06", Step(4)))

    assert [[3, 4]] == opened(driver)


def test_sessions_that_can_not_be_merged_are_dropped_with_what_bridges_them() -> None:
    """All of them are one session."""

    def merge(left: Path, right: Path) -> None:
        message = "no"
        raise LookupError(message)

    driver = fed(SessionDriver(spec_of(merge=merge)), ("10:00", Step(1)), ("10:16", Step(2)))

    fed(driver, ("10:05", Step(3)), ("10:08", Step(4)), ("10:50", Step(5)))

    assert [[5]] == opened(driver)
    failed, session = dropped(driver)
    assert [at("10:05"), at("10:08")] == failed
    assert (at("10:00"), at("10:26")) == (session.session_start, session.session_end)
    assert session.reason.startswith("dropped with 4 events, 2 of them folded before: `merge` (")
    assert session.reason.endswith("raised LookupError: no, for Key(key='a')")


def test_a_state_that_does_not_fit_drops_its_session() -> None:
    """As it fails an event under `on_error="reject"`."""

    def update(state: Path, event: Step) -> Path:
        return Path([*state.numbers, "x" if event.number < 0 else event.number])  # type: ignore[list-item]

    driver = fed(
        SessionDriver(spec_of(update=update)),
        ("10:00", Step(1)), ("10:01", Step(-2)), ("10:30", Step(3)),
    )  # fmt: skip

    assert [[3]] == opened(driver)
    failed, session = dropped(driver)
    assert [at("10:00"), at("10:01")] == failed
    assert "left a state that does not fit: `Path.numbers[1]`" in session.reason
    assert session.traceback is None


def test_a_function_that_fails_once_drops_its_session_too() -> None:
    """It may have failed for a reason that's gone; the reason says that nobody knows it."""
    calls: list[int] = []

    def update(state: Path, event: Step) -> Path:
        calls.append(event.number)
        if len(calls) == 2:
            message = "only once"
            raise ValueError(message)
        return Path([*state.numbers, event.number])

    driver = fed(SessionDriver(spec_of(update=update)), ("10:00", Step(1)), ("10:01", Step(2)))

    assert [] == opened(driver)
    failed, session = dropped(driver)
    assert 2 == len(failed)
    assert session.reason.endswith("its session can't be folded, though each event can")


def test_a_gap_that_fails_drops_its_event_alone() -> None:
    """Without its gap nobody knows which session it belongs to."""

    def gap(event: Step) -> timedelta:
        if event.number < 0:
            message = "negative"
            raise ValueError(message)
        return GAP

    rules = SessionRules(gap, max_gap=GAP)
    driver = fed(SessionDriver(spec_of(timeout=rules)), ("10:00", Step(1)), ("10:01", Step(-2)))

    assert [[1]] == opened(driver)
    assert ["failed"] == [one.kind for one in driver.take_rejections()]


def test_a_finish_that_fails_is_told_with_the_session() -> None:
    """As under `on_error="reject"`: it's a failed output, and none of its events has failed."""

    def finish(session: Any, state: Path) -> Path:
        message = "unlucky"
        raise ValueError(message)

    driver = fed(SessionDriver(spec_of(finish=finish)), ("10:00", Step(1)))
    (session,) = driver.open_sessions()
    driver.advance_watermark_to(at("11:00"))
    driver.run_batch()

    (rejected,) = driver.take_rejections()
    assert ("failed_output", session.id) == (rejected.kind, rejected.session_id)
    assert (session.start, session.end) == (rejected.session_start, rejected.session_end)
    assert (1, 0) == (driver.counts.processed, driver.counts.failed)


def test_a_sum_that_does_not_fit_drops_its_session() -> None:
    """With what is stored of it; other sessions of the key go on."""
    total = {"total": agg.sum("number")}
    driver: SessionDriver[Any, Any, Any] = SessionDriver(
        SessionSpec.aggregate(Step, total, **grouped(**without_event()))
    )
    fed(driver, ("10:00", Step(LARGEST)), ("10:30", Step(1)))

    fed(driver, ("10:05", Step(5)), ("10:31", Step(2)))

    assert [3] == [session.state.total for session in driver.open_sessions()]
    failed, session = dropped(driver)
    assert [at("10:05")] == failed
    assert session.reason == (
        "dropped with 2 events, 1 of them folded before: "
        "`total`, `sum('number')`, would not fit its type"
    )


def without_event(**changes: Any) -> dict[str, Any]:
    """Return the rules without the class of the events."""
    return {name: value for name, value in settings(**changes).items() if name != "event"}


@pytest.mark.parametrize("aggregated", [False, True])
def test_a_session_that_is_dropped_still_ends_the_one_before(aggregated: bool) -> None:
    """Which rules fire is known before any function runs, from all events."""
    rules = SessionRules(GAP, starts_with="begins")
    changes = {"timeout": rules, "order": "event_time"}
    values = {"numbers": agg.collect("number", at_most=5), "total": agg.sum("number")}
    spec: Any = (
        SessionSpec.aggregate(Step, values, **grouped(**without_event(**changes)))
        if aggregated
        else spec_of(**changes)
    )
    bad = [Step(LARGEST, begins=True), Step(1)] if aggregated else [Step(-1, begins=True), Step(1)]
    driver = fed(
        SessionDriver(spec),
        ("10:00", Step(1)), ("10:01", Step(2)), ("10:05", bad[0]), ("10:06", bad[1]),
    )  # fmt: skip
    driver.advance_watermark_to(at("10:07"))
    driver.run_batch()

    (row,) = driver.take_rows()
    assert ([1, 2], "starts_with") == (row.result.numbers, row.closed_by)
    assert [at("10:05"), at("10:06")] == dropped(driver)[0]
