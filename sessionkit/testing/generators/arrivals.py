"""Events in the order in which they arrive, and their cuts into batches."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from sessionkit.state import codec_of
from sessionkit.testing.generators.objects import AnySessionSpec, keys_of, objects_of

__all__ = ["Arrival", "arrival", "cuts", "instants", "timelines"]

T = TypeVar("T")

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
NUDGES: Final = tuple(timedelta(microseconds=us) for us in (0, 1, -1, 1_000, -1_000))
SOME_KEYS: Final = 3


class Arrival(NamedTuple):
    """
    An event as it reaches the source: `driver.add(*arrival)`.

    Attributes:
        key: The values of the key columns, a tuple.
        event_time: When it happened, in UTC.
        event: The event.
    """

    key: tuple[Any, ...]
    event_time: datetime
    event: Any


def timelines(
    spec: AnySessionSpec,
    events: SearchStrategy[Any] | None = None,
    *,
    keys: SearchStrategy[tuple[Any, ...]] | None = None,
    min_size: int = 1,
    max_size: int = 12,
) -> SearchStrategy[list[Arrival]]:
    """
    Make events of several keys in the order in which they arrive.

    Times gather at the boundaries of the rules: at one instant, exactly one gap apart, and a
    microsecond or a millisecond to either side of that. Events come out of order within the
    watermark delay, and now and then far later than it allows.

    Args:
        spec: The spec with the keys, event class, gap and watermark delay.
        events: The events; by default objects of the event class with modest values. Fields that
            are columns of the key, or the event time, are set to what the arrival says.
        keys: Tuples of the values of the key columns; by default up to three keys by their types.
        min_size: How many events there are at least.
        max_size: How many at most.

    Raises:
        FieldTypeError: A field of the event class cannot be generated.
    """
    some_keys = st.lists(keys_of(spec) if keys is None else keys, min_size=1, max_size=SOME_KEYS)
    made = objects_of(spec.event, modest=True) if events is None else events
    lags, times = _lags(spec), instants(spec, gaps=6)

    def of_keys(chosen: list[tuple[Any, ...]]) -> SearchStrategy[list[Any]]:
        parts = st.tuples(lags, st.sampled_from(chosen), times, made)
        return st.lists(parts, min_size=min_size, max_size=max_size)

    return some_keys.flatmap(of_keys).map(partial(_as_they_arrive, spec))


def _as_they_arrive(spec: AnySessionSpec, parts: list[Any]) -> list[Arrival]:
    parts = sorted(parts, key=lambda part: part[0] + part[2])
    return [arrival(spec, key, time, event) for _, key, time, event in parts]


@st.composite
def cuts(draw: DrawFn, items: Sequence[T], *, max_batches: int = 6) -> list[list[T]]:
    """
    Cut a sequence into batches, in order; no batch is empty.

    Args:
        draw: Passed by hypothesis.
        items: What is cut.
        max_batches: Into how many batches at most.
    """
    places = st.integers(1, max(1, len(items) - 1))
    borders = draw(st.sets(places, max_size=min(max_batches, len(items)) - 1 if items else 0))
    return [list(items[low:high]) for low, high in pairwise([0, *sorted(borders), len(items)])]


def instants(spec: AnySessionSpec, *, gaps: int) -> SearchStrategy[datetime]:
    """Make event times within a few gaps that gather at the boundaries of the rules of a spec."""
    half_gap = spec.timeout.longest / 2
    return st.builds(
        lambda half_gaps, delays, nudge: (
            START + half_gaps * half_gap + delays * spec.watermark_delay + nudge
        ),
        st.integers(0, 2 * gaps),
        st.integers(0, 1),
        st.sampled_from(NUDGES),
    )


def _lags(spec: AnySessionSpec) -> SearchStrategy[timedelta]:
    """Make the delays of events: mostly none, at times more than the watermark delay covers."""
    gap, delay = spec.timeout.longest, spec.watermark_delay
    return st.sampled_from([timedelta(0), delay / 2, timedelta(0), delay, delay + gap, 5 * gap])


def arrival(spec: AnySessionSpec, key: tuple[Any, ...], time: datetime, event: Any) -> Arrival:
    """Return the arrival of an event whose fields agree with the columns of the same names."""
    columns = dict(zip(spec.keys, key, strict=True)) | {spec.event_time: time}
    shared = {
        field.alias: columns[field.name]
        for field in codec_of(spec.event).type.fields
        if field.name in columns
    }
    return Arrival(key, time, attrs.evolve(event, **shared) if shared else event)
