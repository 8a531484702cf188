"""Specs that several tests share: a session that lists its values, so that nothing can hide."""

from datetime import timedelta
from typing import Any

import attrs

from sessionkit import EventTimeGap, Functions, Memory, Session, SessionRules, SessionSpec
from sessionkit.testing import SessionDriver, SessionRow, at
from sessionkit.testing.drivers.query import stored_rows


@attrs.define
class Reading:
    """An event: a number, and the gap that it asks for."""

    value: int
    gap: timedelta


@attrs.define
class Open:
    values: list[int]


@attrs.frozen
class Listed:
    """The numbers of a session, and how many the library counted."""

    values: list[int]
    events: int


def create(key: Any, event: Reading) -> Open:
    return Open([event.value])


def update_sorted(state: Open, event: Reading) -> Open:
    """Add a number; the order of arrival does not show."""
    state.values = sorted([*state.values, event.value])
    return state


def merge_sorted(left: Open, right: Open) -> Open:
    """Join two lists; the order of arrival does not show."""
    return Open(sorted([*left.values, *right.values]))


def append(state: Open, event: Reading) -> Open:
    """Add a number after the others, so that every order shows."""
    state.values.append(event.value)
    return state


def finish(session: Session, state: Open) -> Listed:
    return Listed(state.values, session.events)


def collecting(
    timeout: EventTimeGap | SessionRules, **options: Any
) -> SessionSpec[Reading, Open, Listed]:
    """Return a spec whose functions keep the merge law."""
    logic: dict[str, Any] = {
        "create": create,
        "update": update_sorted,
        "merge": merge_sorted,
        "finish": finish,
        "state": Open,
    }
    logic |= {name: options.pop(name) for name in logic.keys() & options.keys()}
    settings: dict[str, Any] = {"watermark_delay": timedelta(0), **options}
    return SessionSpec(
        keys={"key": str},
        event_time="at",
        logic=Functions(**logic, event=Reading, result=Listed),
        timeout=timeout,
        **settings,
    )


@attrs.frozen
class Past:
    """What is remembered of a key: the values of its sessions, in their order."""

    values: list[int]


def remember(session: Session[Any, Past], state: Open) -> Past:
    return Past([*(session.memory.values if session.memory else []), *state.values])


def with_past(session: Session[Any, Past], state: Open) -> Listed:
    """Return a row whose number of events includes the sessions before."""
    past = len(session.memory.values) if session.memory else 0
    return Listed(state.values, past + session.events)


def remembering(
    timeout: EventTimeGap | SessionRules, **options: Any
) -> SessionSpec[Reading, Open, Listed]:
    """Return a spec whose rows show what is remembered of their keys."""
    memory = Memory(time_to_live="1 day", remember=remember)
    return collecting(timeout, finish=with_past, memory=memory, **options)


def in_order(
    timeout: EventTimeGap | SessionRules, **options: Any
) -> SessionSpec[Reading, Open, Listed]:
    """Return a spec whose functions depend on the order of the events, and have no merge."""
    logic = {"update": append, "merge": None}
    return collecting(timeout, **{"order": "event_time", **logic, **options})


def fed(
    driver: SessionDriver[Any, Any, Any], *steps: tuple[str, Any]
) -> SessionDriver[Any, Any, Any]:
    """Run a micro-batch of events of one key."""
    for time, step in steps:
        driver.add("a", at(time), step)
    driver.run_batch()
    return driver


def ended(
    driver: SessionDriver[Any, Any, Any], until: str = "2026-01-02 00:00"
) -> list[SessionRow[Any]]:
    """Move the watermark to an instant after all sessions, and return their rows."""
    driver.advance_watermark_to(at(until))
    driver.run_until_idle()
    return driver.take_rows()


def bytes_of(driver: SessionDriver[Any, Any, Any]) -> int:
    """Return how many bytes of payload are stored."""

    def size(value: Any) -> int:
        if isinstance(value, dict):
            return sum(map(size, value.values()))
        return len(value) if isinstance(value, bytes) else 0

    return sum(size(value) for _, row in stored_rows(driver.snapshot()) for value in row)


def opened(driver: SessionDriver[Any, Any, Any]) -> list[list[int]]:
    return [session.state.numbers for session in driver.open_sessions()]
