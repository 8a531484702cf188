"""Specs whose classes change over their stored state, and short ways to run them."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final

import attrs

from sessionkit import (
    EventTimeGap,
    Functions,
    Inputs,
    KeyState,
    KeyTimes,
    SessionSpec,
    StatefulSpec,
    Storage,
)
from sessionkit.state import RenamedFrom
from sessionkit.testing import SessionDriver, StatefulDriver, at

USERS = [f"user {number}" for number in range(100)]
SESSIONS = ["buckets", "pages"]
KEYS = ["buckets", "pages"]


@attrs.frozen
class View:
    number: int
    note: str = ""


@attrs.frozen
class LaterView:
    count: Annotated[float, RenamedFrom("number")]
    source: Annotated[str | None, RenamedFrom()] = None


@attrs.define
class First:
    views: int = 0
    note: str = ""
    gone: list[str] = attrs.field(factory=list)


@attrs.define
class Second:
    """The state of today, to which rules lead from the first one."""

    pages: Annotated[float, RenamedFrom("views")] = 0
    tags: Annotated[list[str], RenamedFrom()] = attrs.field(factory=lambda: ["old"])
    note: str | None = None


@attrs.define
class Third:
    """A state to which only a function leads."""

    text: str = ""


@attrs.define
class Fourth:
    """A state to which only another function leads."""

    words: list[str] = attrs.field(factory=list)


def count(state: First, event: View) -> None:
    state.views += event.number
    state.note = event.note


def count_later(state: Second, event: Any) -> None:
    state.pages += event.count if isinstance(event, LaterView) else event.number
    state.note = None if isinstance(event, LaterView) else event.note


def count_texts(state: Third, event: View) -> None:
    state.text += "+" * event.number


def count_words(state: Fourth, event: View) -> None:
    state.words += ["+"] * event.number


def ignore(state: Any, event: Any) -> None:
    """Do nothing, whatever the classes are."""


def of_first(old: First) -> Third:
    return Third(f"{old.views} {old.note}")


def of_third(old: Third) -> Fourth:
    return Fourth(old.text.split())


PLAIN: Final = Storage()
INPUTS: Final = Inputs()


def stored(layout: Any, storage: Storage) -> Storage:
    buckets = storage.bucket_count or 2
    return attrs.evolve(storage, layout=layout, bucket_count=buckets)


def sessions(
    update: Callable[..., Any],
    state: Any,
    layout: Any,
    event: Any = View,
    *,
    storage: Storage = PLAIN,
    inputs: Inputs = INPUTS,
) -> SessionSpec[Any, Any, Any]:
    """Return a spec of sessions; events wait for their turn."""
    return SessionSpec(
        logic=Functions(event=event, state=state, update=update),
        keys={"user": str},
        event_time="at",
        timeout=EventTimeGap("30m"),
        watermark_delay="10m",
        order="event_time",
        storage=stored(layout, storage),
        inputs=inputs,
    )


def keys(
    update: Callable[..., Any],
    cls: Any,
    layout: Any,
    event: Any = View,
    *,
    storage: Storage = PLAIN,
) -> StatefulSpec[Any, Any, Any]:
    """Return a spec of keys that does the same, and has keys without a state."""

    def process(key: Any, events: list[Any], state: KeyState[Any], times: KeyTimes) -> Any:
        times.set_event_timer("wake", at("23:00"))
        if key.user.endswith("7"):
            return
        found = state.get(cls())
        for passed in events:
            update(found, passed)
        state.set(found)

    def on_timer(key: Any, name: str, state: KeyState[Any], times: KeyTimes) -> Any:
        return state.get(cls())

    return StatefulSpec(
        keys={"user": str},
        event_time="at",
        event=event,
        state=cls,
        result=cls,
        process=process,
        on_timer=on_timer,
        timeout=EventTimeGap("12h"),
        watermark_delay="10m",
        order="event_time",
        storage=stored(layout, storage),
    )


def driver_of(spec: Any) -> Any:
    return SessionDriver(spec) if isinstance(spec, SessionSpec) else StatefulDriver(spec)


def changed(driver: Any, spec: Any) -> Any:
    """Return a driver that goes on from what another one has stored."""
    return type(driver).restore(spec, driver.snapshot())


def add(driver: Any, event: Any, when: datetime, users: list[str] = USERS) -> None:
    """Run a micro-batch with an event of each user."""
    for user in users:
        driver.add(user, when, event)
    driver.run_batch()


def states(driver: Any) -> dict[str, Any]:
    found = driver.open_sessions if isinstance(driver, SessionDriver) else driver.stored_keys
    return {stored.key.user: stored.state for stored in found()}


SPECS: list[tuple[Any, str]] = [
    *((sessions, layout) for layout in SESSIONS),
    *((keys, layout) for layout in KEYS),
]
"""What makes a spec, and in which layout."""
