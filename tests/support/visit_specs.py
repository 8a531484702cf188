"""Classes and functions of a visit, and specs of them, for tests of what a spec reads."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple, Self

import attrs

from sessionkit import Functions, KeyState, KeyTimes, NoTimeout, Session, SessionSpec, StatefulSpec


class User(NamedTuple):
    user_id: str


@attrs.define
class View:
    url: str


@attrs.define
class LongView(View):
    seconds: float


@attrs.define
class Click:
    button: int


@attrs.define
class Visit:
    """A state with methods; it is its own row."""

    pages: int = 0

    def update(self, event: View) -> None:
        self.pages += 1

    def merge(self, other: "Visit") -> None:
        self.pages += other.pages


@attrs.frozen
class Row:
    pages: int
    user: str = ""


@attrs.frozen
class Reading:
    """A frozen state with every method; some of them take the time."""

    pages: int
    last: datetime

    @classmethod
    def create(cls, key: User, event: View, time: datetime) -> Self:
        return cls(1, time)

    def update(self, event: View, time: datetime) -> Self:
        return attrs.evolve(self, pages=self.pages + 1, last=max(self.last, time))

    def merge(self, other: Self) -> Self:
        return attrs.evolve(self, pages=self.pages + other.pages, last=max(self.last, other.last))

    def finish(self, session: Session[User]) -> Row:
        return Row(self.pages, session.key.user_id)


SETTINGS: dict[str, Any] = {
    "keys": {"user_id": str},
    "event_time": "ts",
    "watermark_delay": "10 minutes",
}


def create(key: Any, event: View) -> Visit:
    return Visit(1)


def update(state: Visit, event: View) -> Visit:
    return Visit(state.pages + 1)


def merge(left: Visit, right: Visit) -> Visit:
    return Visit(left.pages + right.pages)


def finish(session: Session, state: Visit) -> Row:
    return Row(state.pages)


FUNCTIONS = {"create", "update", "merge", "finish", "event", "state", "result"}


def spec_of(**changes: Any) -> SessionSpec[Any, Any, Any]:
    """Make a spec from functions only, some of its settings changed."""
    logic: Any = {"create": create, "update": update, "merge": merge, "finish": finish}
    functions = {name: changes.pop(name) for name in FUNCTIONS & changes.keys()}
    logic = Functions(**logic | functions)
    return SessionSpec(logic=logic, **{**SETTINGS, "timeout": "30 minutes", **changes})


def untyped(first: Any, second: Any) -> Any:
    return first


SILENT: dict[str, Any] = dict.fromkeys(("create", "update", "merge", "finish"), untyped)
TYPED: dict[str, Any] = {"event": View, "state": Visit, "result": Row}


@attrs.frozen
class Unstorable:
    """A class with two fields that cannot be stored."""

    tags: set[str]
    raw: object


def process(key: Any, events: list[View], state: KeyState[Visit], times: KeyTimes) -> Row | None:
    """Do nothing."""


def on_timer(key: Any, name: str, state: KeyState[Visit], times: KeyTimes) -> Iterator[Row]:
    yield Row(1)


def bare(key: Any, events: list[View], state: KeyState, times: KeyTimes) -> None:  # type: ignore[type-arg]
    """Leave the class of the state out."""


def stateful(process: Any, **changes: Any) -> StatefulSpec[Any, Any, Any]:
    return StatefulSpec(**{**SETTINGS, "process": process, "timeout": NoTimeout(), **changes})
