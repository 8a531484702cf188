"""Calls with a value of another kind in the place of one argument."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final, TypeAlias

import attrs
import pyarrow.compute as pc

from sessionkit import EventTimeGap, Inputs, SessionkitError
from sessionkit import aggregates as agg


@attrs.frozen
class Other:
    """A class of fields that no spec reads."""

    page: str = ""


Call: TypeAlias = tuple[Callable[..., Any], list[Any], dict[str, Any]]
"""A function, and values with which it's right; an argument that is None is left out."""

WRONG: Final[Sequence[Any]] = (
    5,
    5.5,
    True,
    None,
    "",
    "a b",
    b"page",
    [],
    [5],
    ["page"],
    [["page"]],
    {},
    {"page": 5},
    {5: "page"},
    {"page": ["page"]},
    (),
    object(),
    Other,
    Other(),
    [Other],
    dict,
    len,
    lambda: 0,
    timedelta(1),
    date(2026, 3, 1),
    datetime(2026, 3, 1),  # noqa: DTZ001 (without a zone)
    pc.field("page"),
    pc.field("page") == "/",
    agg.count(),
    agg.count,
    EventTimeGap("1 hour"),
    Inputs,
    Inputs(),
)
"""Values of all kinds, each of which most arguments don't take."""


def right(call: Call) -> Any:
    """Call with the values that are right."""
    function, values, named = call
    return function(*values, **{name: value for name, value in named.items() if value is not None})


def places(call: Call) -> list[int | str]:
    """Return the arguments of a call, by place or by name."""
    _, values, named = call
    return [*range(len(values)), *named]


def raw_errors(call: Call, place: int | str, wrong: Sequence[Any] = WRONG) -> list[str]:
    """Return the errors, not in words of sessionkit, of calls with one wrong value each."""
    function, values, named = call
    raw = []
    for value in wrong:
        given: list[Any] = list(values)
        others: Mapping[Any, Any] = {name: one for name, one in named.items() if one is not None}
        if isinstance(place, int):
            given[place] = value
        else:
            others = {**others, place: value}
        try:
            function(*given, **others)
        except SessionkitError:
            continue
        except Exception as error:  # noqa: BLE001 (each is one that a user would see)
            raw.append(f"{value!r}: {type(error).__name__}: {error}")
    return raw
