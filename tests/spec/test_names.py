"""The names of columns: which are free, and what a refusal says of two that are the same."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from sessionkit import (
    Inputs,
    KeyState,
    KeyTimes,
    Memory,
    NoTimeout,
    Results,
    SessionSpec,
    StatefulSpec,
)
from sessionkit import aggregates as agg
from sessionkit.spec.base import check_names_with_rejected
from sessionkit.testing import SessionDriver, StatefulDriver
from tests.support.refusals import refusal, says

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
LATER = datetime(2026, 3, 8, 13, tzinfo=UTC)
OF_REJECTED = ["kind", "reason", "traceback", "event_time", "event_id", "event"]


@attrs.frozen
class Click:
    """An event with the most usual columns of a clickstream."""

    kind: str | None = None
    reason: str | None = None
    traceback: str | None = None
    event_id: str | None = None
    event: str | None = None


@attrs.define
class Left:
    """A state and a row with names that sessionkit has for columns of some specs."""

    closed_by: str = ""
    revision: int = 0
    is_final: str = ""
    supersedes: str = ""
    session_number: int = 0

    def update(self, click: Click) -> None:
        self.closed_by, self.revision = click.reason or "", self.revision + 7


def settings(**changes: Any) -> dict[str, Any]:
    """Return what the specs of these tests share."""
    return {
        "keys": {"user": str},
        "event_time": "ts",
        "gap": "30 minutes",
        "watermark_delay": "10 minutes",
        **changes,
    }


def per_event(**changes: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.per_event(Click, **settings(**changes))


def counted(name: str = "clicks", **changes: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.aggregate(Click, {name: agg.count()}, **settings(**changes))


def ended(spec: SessionSpec[Any, Any, Any], *rows: dict[str, Any]) -> SessionDriver[Any, Any, Any]:
    """Return a driver after rows whose sessions are over."""
    driver = SessionDriver(spec)
    for row in rows:
        driver.add_row(row)
    driver.run_batch()
    driver.advance_watermark_to(LATER)
    driver.run_batch()
    return driver


@pytest.mark.parametrize("name", OF_REJECTED)
def test_a_key_may_have_the_name_of_a_column_of_rejected_rows(name: str) -> None:
    """A driver has it in rows and rejections alike, next to what the rejection says itself."""
    time = "ts" if name == "event_time" else "event_time"
    driver = ended(
        counted(keys={name: str}, event_time=time), {name: "a", time: NOON}, {name: "b", time: None}
    )
    (row,), (rejection,) = driver.take_rows(), driver.take_rejections()

    assert ("a", 1) == (getattr(row.key, name), row.result.clicks)
    assert ("b", "quarantined") == (getattr(rejection.key, name), rejection.kind)
    assert "its event time is null" == rejection.reason


@pytest.mark.parametrize("name", OF_REJECTED)
def test_a_passthrough_column_may_have_the_name_of_a_column_of_rejected_rows(name: str) -> None:
    driver = ended(counted(inputs=Inputs(passthrough={name: str})), {"user": "a", name: "x"})
    (rejection,) = driver.take_rejections()

    assert {name: "x"} == rejection.passthrough
    assert "its event time is null" == rejection.reason


def test_events_keep_columns_with_the_names_of_those_of_rejected_rows() -> None:
    """Their time too, where its column is called as that of rejected rows."""
    click = {"kind": "buy", "reason": "sale", "traceback": "t", "event_id": "e1", "event": "pay"}
    rows = ({"user": "a", "event_time": NOON, **click}, {"user": "b"})
    driver = ended(per_event(event_time="event_time"), *rows)
    (row,), (rejection,) = driver.take_rows(), driver.take_rejections()

    assert {"number": 1, "event_time": NOON, **click} == attrs.asdict(row.result)
    assert {**dict.fromkeys(click), "kind": None} == rejection.event
    assert ("quarantined", "its event time is null") == (rejection.kind, rejection.reason)


def test_a_result_may_have_the_names_of_columns_that_the_spec_does_not_add() -> None:
    spec = SessionSpec.of(Left, **settings(order="event_time"))
    (row,) = ended(spec, {"user": "a", "ts": NOON, "reason": "bored"}).take_rows()

    assert ("bored", 7) == (row.result.closed_by, row.result.revision)
    assert ("gap", 1, True, ()) == (row.closed_by, row.revision, row.is_final, row.supersedes)


def test_a_rejection_of_a_key_has_no_session_where_the_key_is_called_so() -> None:
    def process(
        key: Any, events: list[Click], state: KeyState[Left], times: KeyTimes
    ) -> list[Left]:
        return []

    spec = StatefulSpec(
        process=process, keys={"session_id": str}, event_time="ts", timeout=NoTimeout()
    )
    driver = StatefulDriver(spec)
    driver.add_row({"session_id": "s", "ts": None})
    driver.run_batch()
    (rejection,) = driver.take_rejections()

    assert ("s", None) == (rejection.key.session_id, rejection.session_id)


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: counted(keys={"kind": str}), ["`kind`", "the key `kind`", "in `keys`"]),
        (lambda: counted(keys={"Kind": str}), ["`Kind`", "the key `Kind`"]),
        (lambda: counted("reason"), ["`reason`", "rename the aggregate `reason`"]),
        (per_event, ["`kind`", 'frame.withColumnRenamed("kind", "own_kind")']),
        (
            lambda: counted(inputs=Inputs(passthrough={"event_id": str})),
            ["`event_id`", "the passthrough column `event_id`", "in `passthrough`"],
        ),
        (lambda: counted(inputs=Inputs(passthrough={"user": str})), ["the key `user` and"]),
    ],
)
def test_a_name_that_a_frame_with_rejected_rows_has_twice_is_refused(
    make: Callable[[], SessionSpec[Any, Any, Any]], facts: list[str]
) -> None:
    """The error says which argument has it, and how to rename the column."""
    assert says(refusal(check_names_with_rejected, make()), "rejected rows", *facts)


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: counted("user"), ["`user`: the key `user` and", "rename the aggregate `user`"]),
        (
            lambda: counted(keys={"session_id": str}),
            ["`session_id`", "rename the column", "`keys`"],
        ),
        (lambda: counted("last_event_time"), ["one of sessionkit's", "rename the aggregate"]),
        (
            lambda: counted(
                "clicks", memory=Memory(time_to_live="1 day", last={"clicks": "clicks"})
            ),
            ["the column `clicks` of `memory` and", "rename the aggregate `clicks`"],
        ),
        (
            lambda: counted("number", results=Results(with_events=True)),
            ["`number`", "one of rejected rows", "rename the aggregate `number`"],
        ),
    ],
)
def test_a_name_that_every_row_has_twice_is_refused_at_once(
    make: Callable[[], SessionSpec[Any, Any, Any]], facts: list[str]
) -> None:
    assert says(refusal(make), "two columns named", *facts)
