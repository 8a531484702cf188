"""Whether the functions of a spec give the same session for every order and cut of its events."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

import attrs
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
    instants,
    keys_of,
    objects_of,
)

MOST_EVENTS: Final = 5
ROUNDING: Final = 1e-9


@attrs.frozen
class _Ways:
    """Events of one key in time order, and in which batch each comes the second time."""

    arrivals: list[Arrival]
    batches: list[int]

    @property
    def in_parts(self) -> list[list[int]]:
        """The second way: the places of the events of each batch."""
        return [
            [place for place, other in enumerate(self.batches) if other == batch]
            for batch in sorted(set(self.batches))
        ]

    def without(self, place: int) -> "_Ways":
        """Leave out one event."""
        arrivals, batches = list(self.arrivals), list(self.batches)
        del arrivals[place], batches[place]
        return _Ways(arrivals, batches)


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
    try:
        found = find(
            _ways(spec, events), lambda ways: _differ(spec, ways), settings=_search(max_examples)
        )
    except NoSuchExample:
        return
    raise ExpectationError(_text(spec, _smallest(spec, found)))


def _differ(spec: AnySessionSpec, ways: _Ways) -> bool:
    one, another = _both(spec, ways)
    return not _alike(_states(spec, one), _states(spec, another))


def _search(max_examples: int) -> settings:
    return settings(
        max_examples=max_examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


def _smallest(spec: AnySessionSpec, ways: _Ways) -> _Ways:
    """Leave out every event that changes nothing: hypothesis can't, where they have many fields."""
    for place in range(len(ways.arrivals)):
        fewer = ways.without(place)
        if fewer.arrivals and _differ(spec, fewer):
            return _smallest(spec, fewer)
    return ways


def _ways(spec: AnySessionSpec, events: SearchStrategy[Any] | None) -> SearchStrategy[_Ways]:
    made = objects_of(spec.event, modest=True) if events is None else events
    parts = st.tuples(instants(spec, gaps=3), made, st.integers(0, MOST_EVENTS - 1))
    several = st.lists(parts, min_size=2, max_size=MOST_EVENTS)
    # One key is enough: no function ever sees the states of two.
    return st.builds(partial(_in_time_order, spec), keys_of(spec), several)


def _in_time_order(spec: AnySessionSpec, key: tuple[Any, ...], parts: list[Any]) -> _Ways:
    parts = sorted(parts, key=itemgetter(0))
    arrivals = [arrival(spec, key, time, event) for time, event, _ in parts]
    return _Ways(arrivals, [batch for _, _, batch in parts])


def _both(spec: AnySessionSpec, ways: _Ways) -> tuple[pa.Table, pa.Table]:
    """Return the open sessions in one batch, and in several."""
    table = _events(spec, ways.arrivals)
    return _folded(spec, [table]), _folded(spec, map(table.take, ways.in_parts))


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


def _folded(spec: AnySessionSpec, batches: Iterable[pa.Table]) -> pa.Table:
    logic = SessionLogic(spec)
    sessions = logic.schema.empty_table()
    for batch in batches:
        sessions = logic.fold.join(logic.program, sessions, batch, Horizon(None)).sessions
    return sessions.sort_by("start")


def _states(spec: AnySessionSpec, sessions: pa.Table) -> list[tuple[int, Any]]:
    """Return of each session how many events it has, and its state."""
    return list(
        zip(
            sessions["events"].to_pylist(),
            SessionLogic(spec).fold.states(spec, sessions),
            strict=True,
        )
    )


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


def _text(spec: AnySessionSpec, ways: _Ways) -> str:
    at_once, in_parts = _both(spec, ways)
    pairs = zip(_states(spec, at_once), _states(spec, in_parts), strict=True)
    one, another = next(pair for pair in pairs if not _alike(*pair))
    batches = [" ".join(str(place + 1) for place in batch) for batch in ways.in_parts]
    together = " ".join(str(place + 1) for place in range(len(ways.arrivals)))
    lines = [
        f"the same events give two different {spec.state.__name__}, by the way in which they come:",
        *(_line(place + 1, arrival) for place, arrival in enumerate(ways.arrivals)),
        f"one batch, {together}:",
        f"  {one[1]!r}",
        f"{len(batches)} batches, {', then '.join(batches)}:",
        f"  {another[1]!r}",
    ]
    hint = (
        "make create, update and merge give the same for every order, for example by storing the "
        'time with what they keep; or fold in time order, with order="event_time"'
    )
    return with_hint("\n".join(lines), hint)


def _line(number: int, arrival: Arrival) -> str:
    return f"  {number}  {arrival.event_time:%Y-%m-%d %H:%M:%S.%f}  {arrival.event!r}"
