"""
Hypothesis strategies for tests of sessions, and a check that the order of events is irrelevant.

Needs hypothesis (the extra `sessionkit[hypothesis]`); no other module of sessionkit imports it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeAlias

import pyarrow as pa
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import SearchStrategy

from sessionkit._classes import attributes_of, is_record
from sessionkit._engine.rows.table import events_schema
from sessionkit._engine.sessions.plan import Horizon
from sessionkit._engine.sessions.step import SessionLogic
from sessionkit.errors import ExpectationError, with_hint
from sessionkit.state._codec import codec_of, encode_column
from sessionkit.state._times import DatetimeType
from sessionkit.testing.generators import (
    AnySessionSpec,
    Arrival,
    arrival,
    attrs_classes,
    cuts,
    instants,
    keys_of,
    objects_of,
    timelines,
)

__all__ = ["Arrival", "attrs_classes", "check_merge_law", "cuts", "objects_of", "timelines"]

MOST_EVENTS: Final = 5
ROUNDING: Final = 1e-9
Ways: TypeAlias = list[tuple[Arrival, int]]
"""Events of one key in time order, and in which batch each comes the second time."""


def check_merge_law(
    spec: AnySessionSpec, events: SearchStrategy[Any] | None = None, *, max_examples: int = 200
) -> None:
    """
    Check that `create`, `update` and `merge` give one session however its events come.

    Events of one key are folded twice, all in one batch and in another order over several: an
    event comes after a later one, or between two open sessions that are then merged. The states
    are compared by `==`, floats in them within rounding. Under `order="event_time"` events are
    folded in time order and never merged, so there is nothing to check.

    The same program tries the same examples in every run. Takes a few seconds; no Spark is
    started.

    Args:
        spec: The spec with the functions. Neither its watermark nor `finish` matters.
        events: The events to choose from; by default objects of the event class, whose fields
            have modest values, so that sums of floats do not depend on their order. A field that
            is the event time column, or one of the key, has the value of that column.
        max_examples: How many timelines are tried.

    Raises:
        ExpectationError: The functions give two different states; the text shows the fewest
            events and batches that were found for it.
        UserFunctionError: A function failed for one of the events.
        FieldTypeError: A field of the event class cannot be generated; pass `events`.
    """
    if spec.order == "event_time":
        return
    search = settings(
        max_examples=max_examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        found = find(_ways(spec, events), partial(_differ, spec), settings=search)
    except NoSuchExample:
        return
    raise ExpectationError(_text(spec, _smallest(spec, found)))


def _ways(spec: AnySessionSpec, events: SearchStrategy[Any] | None) -> SearchStrategy[Ways]:
    made = objects_of(spec.event, modest=True) if events is None else events
    parts = st.tuples(instants(spec, gaps=3), made, st.integers(0, MOST_EVENTS - 1))
    several = st.lists(parts, min_size=2, max_size=MOST_EVENTS)

    def in_time_order(key: tuple[Any, ...], parts: list[Any]) -> Ways:
        parts = sorted(parts, key=itemgetter(0))
        return [(arrival(spec, key, time, event), batch) for time, event, batch in parts]

    # One key is enough: no function ever sees the states of two.
    return st.builds(in_time_order, keys_of(spec), several)


def _differ(spec: AnySessionSpec, ways: Ways) -> bool:
    return not _alike(*_both(spec, ways))


def _smallest(spec: AnySessionSpec, ways: Ways) -> Ways:
    """Leave out every event that changes nothing: hypothesis can't, where they have many fields."""
    for place in range(len(ways)):
        fewer = ways[:place] + ways[place + 1 :]
        if fewer and _differ(spec, fewer):
            return _smallest(spec, fewer)
    return ways


def _both(spec: AnySessionSpec, ways: Ways) -> tuple[list[Any], list[Any]]:
    """Return the open sessions in one batch, and in several."""
    table = _events(spec, [one for one, _ in ways])
    return _folded(spec, [table]), _folded(spec, map(table.take, _batches(ways)))


def _batches(ways: Ways) -> list[list[int]]:
    """Return the places of the events of each batch."""
    batches: dict[int, list[int]] = {}
    for place, (_, batch) in enumerate(ways):
        batches.setdefault(batch, []).append(place)
    return [batches[batch] for batch in sorted(batches)]


def _events(spec: AnySessionSpec, arrivals: Sequence[Arrival]) -> pa.Table:
    columns = [
        encode_column(field.type, [arrival.key[place] for arrival in arrivals], field.name)
        for place, field in enumerate(spec.key_fields)
    ]
    times = [arrival.event_time for arrival in arrivals]
    columns.append(encode_column(DatetimeType(), times, spec.event_time))
    columns += codec_of(spec.event).encode([arrival.event for arrival in arrivals])
    columns += [pa.nulls(len(arrivals), field.type.arrow) for field in spec.passthrough_fields]
    return pa.Table.from_arrays(columns, schema=events_schema(spec))


def _folded(spec: AnySessionSpec, batches: Iterable[pa.Table]) -> list[tuple[int, Any]]:
    """Return of each open session how many events it has, and its state."""
    logic = SessionLogic(spec)
    sessions = logic.program.schema.empty_table()
    for batch in batches:
        sessions = logic.join(sessions, batch, Horizon(None)).sessions
    sessions = sessions.sort_by("start")
    states = logic.fold.states(spec, sessions)
    return list(zip(sessions["events"].to_pylist(), states, strict=True))


def _alike(left: Any, right: Any) -> bool:
    """Compare by `==`; if that is false, allow floats that differ only by rounding."""
    if left.__class__ is not right.__class__:
        return False
    if left == right:
        return True
    match left:
        case float():
            both_nan = math.isnan(left) and math.isnan(right)
            return both_nan or math.isclose(left, right, rel_tol=ROUNDING, abs_tol=ROUNDING)
        case list() | tuple():
            return len(left) == len(right) and all(map(_alike, left, right))
        case Mapping():
            return left.keys() == right.keys() and all(_alike(left[k], right[k]) for k in left)
    return is_record(left.__class__) and all(
        _alike(getattr(left, field.name), getattr(right, field.name))
        for field in attributes_of(left.__class__)
        if field.eq
    )


def _text(spec: AnySessionSpec, ways: Ways) -> str:
    pairs = zip(*_both(spec, ways), strict=True)
    (_, one), (_, another) = next(pair for pair in pairs if not _alike(*pair))
    batches = [" ".join(str(place + 1) for place in batch) for batch in _batches(ways)]
    together = " ".join(str(place + 1) for place in range(len(ways)))
    lines = [
        f"the same events give two different {spec.state.__name__}, by the way in which they come:",
        *(
            f"  {number}  {one.event_time:%Y-%m-%d %H:%M:%S.%f}  {one.event!r}"
            for number, (one, _) in enumerate(ways, start=1)
        ),
        f"one batch, {together}:",
        f"  {one!r}",
        f"{len(batches)} batches, {', then '.join(batches)}:",
        f"  {another!r}",
    ]
    hint = (
        "make create, update and merge give the same for every order, for example by storing the "
        'time with what they keep; or fold in time order, with order="event_time"'
    )
    return with_hint("\n".join(lines), hint)
