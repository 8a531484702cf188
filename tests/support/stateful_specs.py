"""What the tests of `StatefulSpec` share: a key that adds numbers, and short ways to run it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import attrs
import pytest

from sessionkit import (
    EventTimeGap,
    Inputs,
    KeyState,
    KeyTimes,
    NoTimeout,
    StatefulSpec,
    UserFunctionError,
)
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.shell.worker import Worker
from sessionkit.testing import StatefulDriver

Driver = StatefulDriver[Any, Any, Any]


@attrs.frozen
class Amount:
    number: int = 1


@attrs.define
class Sum:
    total: int = 0


@attrs.frozen
class Added:
    """A result: who says so, and the sum then; -1 where there is none."""

    what: str
    total: int


# These name no classes, so that tests may put others in their place.


def add(key: Any, events: list[Any], state: KeyState[Any], times: KeyTimes) -> Any:
    total = Sum(state.get(Sum()).total + sum(event.number for event in events))
    state.set(total)
    return Added("process", total.total)


def report(key: Any, name: str, state: KeyState[Any], times: KeyTimes) -> Any:
    return Added(name, state.get(Sum(-1)).total)


def ignore(key: Any, events: Any, state: KeyState[Any], times: KeyTimes) -> None:
    """Do nothing."""


def taking(event: type[Any], **changes: Any) -> StatefulSpec[Any, Any, Any]:
    """Make a spec that takes events of a class, and does nothing with them."""
    settings = {
        "keys": {"user": str},
        "event": event,
        "result": Sum,
        "timeout": EventTimeGap("1 hour"),
        "inputs": Inputs(passthrough={"offset": int}),
    }
    return summing(**{"process": ignore, "on_timer": report, **settings, **changes})


def summing(
    process: Any = add, on_timer: Any = None, **changes: Any
) -> StatefulSpec[Any, Any, Any]:
    """Make a spec with a watermark, some of its settings changed."""
    settings: dict[str, Any] = {
        "keys": {"key": str},
        "event_time": "at",
        "watermark_delay": "10 minutes",
        "event": Amount,
        "state": Sum,
        "result": Added,
        "process": process,
        "on_timer": on_timer,
        "timeout": NoTimeout(),
    }
    return StatefulSpec(**{**settings, **changes})


def driver_of(spec: StatefulSpec[Any, Any, Any], processing_time: datetime | None = None) -> Driver:
    return StatefulDriver(spec, processing_time=processing_time)


def unwatched(driver: Driver) -> Driver:
    """Let a driver call the functions as Spark does, which loses what they change without `set`."""
    driver._worker = Worker(logic_of(driver.spec), with_rejected=True)
    return driver


def adding(driver: Driver, key: Any, event_time: datetime | None, *numbers: int) -> list[Added]:
    """Run one micro-batch with events of one key; return the results."""
    for number in numbers or (1,):
        driver.add(key, event_time, Amount(number))
    driver.run_batch()
    return driver.take_results()


def texts(rows: Sequence[Added]) -> list[str]:
    return [row.what for row in rows]


def failure(driver: Driver) -> str:
    """Return the text with which the next micro-batch fails."""
    with pytest.raises(UserFunctionError) as failed:
        driver.run_batch()
    return str(failed.value)
