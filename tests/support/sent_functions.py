"""A script whose functions use what a script or a notebook may define; some can't be sent."""

import base64
import enum
import functools
import json
import logging
import os
import re
import sys
import types
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NewType, Protocol, TypedDict, TypeVar

import attrs
import numpy as np
from pyspark import cloudpickle

import __main__
from sessionkit import EventTimeGap, Functions, SessionSpec
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.shell.worker import Worker
from sessionkit.errors import NotPicklableError
from sessionkit.spark.jobs.pickles import check_picklable


@attrs.define
class View:
    page: str


@attrs.define
class Visit:
    n: int = 0


@attrs.define
class WithCache:
    n: int = 0

    @functools.cache  # noqa: B019 (it's what a user writes)
    def price(self) -> int:
        return 1

    def __hash__(self) -> int:
        return 0


@functools.cache
def cached(page: str) -> int:
    return len(page)


@functools.lru_cache(maxsize=8)
def bounded(page: str) -> int:
    return len(page)


def through(page: str) -> int:
    return cached(page)


@functools.singledispatch
def dispatched(page: object) -> int:
    return 1


Number = NewType("Number", int)
Kind = TypeVar("Kind")
Pair = namedtuple("Pair", "one two")  # noqa: PYI024 (it's what a user writes)


class Typed(NamedTuple):
    one: int


class Options(TypedDict):
    one: int


class Priced(Protocol):
    def price(self) -> int: ...


class Color(enum.Enum):
    RED = 1


class Flag(enum.IntFlag):
    ON = 1


LOG = logging.getLogger("visits")
PATTERN = re.compile("/(.*)")
HALF = functools.partial(pow, 2)
PRICES = {"/a": np.int64(1)}
made = types.ModuleType("made_in_this_process")
exec("def price(page):\n    return 1", made.__dict__)  # noqa: S102 (as a tool may do)
sys.modules[made.__name__] = made
nameless = types.ModuleType("nameless")
exec("def price(page):\n    return 1", nameless.__dict__)  # noqa: S102

USES: dict[str, Callable[[Any, Any], Any]] = {
    "cached": lambda state, event: cached(event.page),
    "bounded": lambda state, event: bounded(event.page),
    "through": lambda state, event: through(event.page),
    "dispatched": lambda state, event: dispatched(event.page),
    "Number": lambda state, event: Number(1),
    "__main__": lambda state, event: __main__.__name__,
    "WithCache": lambda state, event: WithCache().price(),
    "made": lambda state, event: made.price(event.page),
    "nameless": lambda state, event: nameless.price(event.page),
    "Kind": lambda state, event: str(Kind),
    "Pair": lambda state, event: Pair(1, 2).one,
    "Typed": lambda state, event: Typed(1).one,
    "Options": lambda state, event: Options(one=1)["one"],
    "Priced": lambda state, event: str(Priced),
    "Color": lambda state, event: Color.RED.value,
    "Flag": lambda state, event: Flag.ON.value,
    "LOG": lambda state, event: LOG.name,
    "PATTERN": lambda state, event: PATTERN.match(event.page),
    "HALF": lambda state, event: HALF(2),
    "PRICES": lambda state, event: PRICES.get(event.page),
    "np": lambda state, event: int(np.int64(1)),
    "itself": lambda state, event: Visit(1).n,
}


def spec_of(use: Callable[[Any, Any], Any]) -> SessionSpec[Any, Any, Any]:
    def update(state: Visit, event: View) -> Visit:
        use(state, event)
        return Visit(state.n + 1)

    return SessionSpec(
        keys={"user": str},
        event_time="ts",
        logic=Functions(update=update, merge=lambda left, right: left),
        timeout=EventTimeGap("1 hour"),
        watermark_delay="1 minute",
    )


def sent() -> dict[str, dict[str, str]]:
    """Return for each use what an executor gets, or why it's refused."""
    found = {}
    for name, use in USES.items():
        spec = spec_of(use)
        try:
            check_picklable(spec)
        except NotPicklableError as error:
            found[name] = {"refused": str(error)}
        else:
            dumped = cloudpickle.dumps(Worker(logic_of(spec)))  # type: ignore[no-untyped-call]
            found[name] = {"sent": base64.b64encode(dumped).decode()}
    return found


if __name__ == "__main__":
    Path(os.environ["SENT"]).write_text(json.dumps(sent()), encoding="utf-8")
