"""Hypothesis strategies: objects of a class, and events in order of arrival."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

import attrs
from hypothesis import HealthCheck, Phase, find, reject, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import DrawFn, SearchStrategy

from sessionkit._arguments import explains
from sessionkit.spec.base import AnySpec
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import AttrsType, DictType, ListType, OptionalType, TupleType
from sessionkit.state._derived import EnumType, LiteralType, SecondsType
from sessionkit.state._scalars import (
    BoolType,
    BytesType,
    DatetimeType,
    DecimalType,
    FloatType,
    IntType,
    StrType,
    TimedeltaType,
    UUIDType,
)
from sessionkit.state._types import INT64, FieldType
from sessionkit.timeouts._policies import TimeoutPolicy, deadlines_of
from sessionkit.timeouts._session_rules import SessionRules

T = TypeVar("T")
Scalars: TypeAlias = dict[type[Any], SearchStrategy[Any]]

TRIES: Final = 10
"""How many draws to try for a class whose validators refuse some values."""

SOME_KEYS: Final = 3
NUDGES: Final = tuple(timedelta(microseconds=us) for us in (0, 1, -1, 1_000, -1_000))
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
ANY: Final[Scalars] = {
    IntType: st.integers(*INT64),
    FloatType: st.floats(),
    BoolType: st.booleans(),
    StrType: st.text(max_size=8),
    BytesType: st.binary(max_size=8),
    UUIDType: st.uuids(),
    SecondsType: st.integers(-(2**52), 2**52).map(lambda us: timedelta(microseconds=us)),
}
# Sums of these values neither overflow nor round, and small alphabets make equal values likely.
MODEST: Final = ANY | {
    IntType: st.integers(-1_000, 1_000),
    FloatType: st.integers(-8_000, 8_000).map(lambda eighths: eighths / 8),
    StrType: st.text("abc", max_size=2),
    BytesType: st.binary(max_size=2),
    DatetimeType: st.integers(0, 86_400).map(lambda seconds: START + timedelta(seconds=seconds)),
    TimedeltaType: st.integers(-3_600, 3_600).map(lambda seconds: timedelta(seconds=seconds)),
    SecondsType: st.integers(-3_600, 3_600).map(lambda seconds: timedelta(seconds=seconds)),
    UUIDType: st.integers(0, 9).map(lambda number: UUID(int=number)),
}


@explains
def objects_of(cls: type[T], *, modest: bool = False) -> SearchStrategy[T]:
    """
    Return a hypothesis strategy for objects of an attrs class.

    Each field gets values of its declared type.

    Args:
        cls: The class of an event, a state or a result.
        modest: Use only values whose sums neither overflow nor round, such as floats in eighths.

    Raises:
        SpecError: A field has a type that can't be stored. The call raises it, not the draw.
    """
    return _values(codec_of(cls).type, MODEST if modest else ANY)


def keys_of(spec: AnySpec) -> SearchStrategy[tuple[Any, ...]]:
    """Generate keys, as tuples of modest values of the key columns."""
    return st.tuples(*(_values(field.type, MODEST) for field in spec.key_fields))


def _values(kind: FieldType, scalars: Scalars) -> SearchStrategy[Any]:
    """Generate the values that a field of this type can hold."""
    match kind:
        case OptionalType(inner):
            return st.none() | _values(inner, scalars)
        case ListType(item, cls):
            return st.lists(_values(item, scalars), max_size=3).map(cls)
        case TupleType(items):
            return st.tuples(*(_values(item, scalars) for item in items))
        case DictType(key, value):
            return st.dictionaries(_values(key, scalars), _values(value, scalars), max_size=3)
        case EnumType(cls):
            return st.sampled_from(cls)
        case LiteralType(values=values):
            return st.sampled_from(values)
        case DecimalType(precision, scale):
            most = 10**precision - 1
            return _decimals(most if scalars is ANY else min(most, 1_000), scale)
        case AttrsType():
            return _objects(
                kind, st.tuples(*(_values(field.type, scalars) for field in kind.fields))
            )
    strategy = scalars.get(type(kind))
    if strategy is not None:
        return strategy
    # All other types are stored as integers.
    bounds = (kind.facts and kind.facts.bounds) or INT64
    return st.integers(*bounds if scalars is ANY else (0, 31)).map(kind.load)


@st.composite
def _objects(draw: DrawFn, kind: AttrsType, values: SearchStrategy[tuple[Any, ...]]) -> Any:
    for _ in range(TRIES):
        drawn = draw(values)
        try:
            return kind.build(*drawn)
        except Exception:  # noqa: BLE001, S112 (validators of the user, which quarantine events)
            continue
    return reject()


def _decimals(largest: int, scale: int) -> SearchStrategy[Decimal]:
    def scaled(number: int) -> Decimal:
        # Arithmetic would round to the precision of the current context.
        digits = tuple(map(int, str(abs(number))))
        return Decimal((int(number < 0), digits, -scale))

    return st.integers(-largest, largest).map(scaled)


class Arrival(NamedTuple):
    """
    An event that reaches the source: `driver.add(*arrival)`.

    Attributes:
        key: The values of the key columns, a tuple.
        event_time: Its event time, in UTC.
        event: The event.
    """

    key: tuple[Any, ...]
    event_time: datetime
    event: Any


@explains
def timelines(
    spec: AnySessionSpec,
    events: SearchStrategy[Any] | None = None,
    *,
    keys: SearchStrategy[tuple[Any, ...]] | None = None,
    min_size: int = 1,
    max_size: int = 12,
) -> SearchStrategy[list[Arrival]]:
    """
    Return a hypothesis strategy for events of several keys, in order of arrival.

    It draws lists of `Arrival(key, event_time, event)`; `key` is a tuple, even with a single key
    column. `driver.add(*arrival)` adds one to a `SessionDriver`.

    Times gather at the boundaries of the rules: at the same instant, exactly one gap apart, and a
    microsecond or a millisecond to either side of that. Events arrive out of order within the
    watermark delay, and sometimes far later than it allows.

    Args:
        spec: The spec with the keys, event class, gap and watermark delay.
        events: A strategy for the events; by default objects of the event class with modest values.
            If a field of the class has the name of a key column or of the event time, it gets that
            value.
        keys: A strategy for keys: tuples with the values of the key columns, such as `("ann",)`. Up
            to three of its keys are in a list. By default, values of the types of the columns.
        min_size: The minimum number of events.
        max_size: The maximum number of events.

    Raises:
        SpecError: A field of the event class can't be generated.
    """
    some_keys = st.lists(keys_of(spec) if keys is None else keys, min_size=1, max_size=SOME_KEYS)
    objects = objects_of(spec.event, modest=True) if events is None else events
    gap, delay = spec.timeout.longest, spec.watermark_delay
    # Usually within the watermark delay, sometimes longer.
    lags = st.sampled_from([timedelta(0), delay / 2, timedelta(0), delay, delay + gap, 5 * gap])
    times = instants_near(spec, gaps=6)

    def of_keys(chosen: list[tuple[Any, ...]]) -> SearchStrategy[list[Any]]:
        parts = st.tuples(lags, st.sampled_from(chosen), times, objects)
        return st.lists(parts, min_size=min_size, max_size=max_size)

    def as_they_arrive(parts: list[Any]) -> list[Arrival]:
        parts = sorted(parts, key=lambda part: part[0] + part[2])
        return [arrival(spec, key, time, event) for _, key, time, event in parts]

    return some_keys.flatmap(of_keys).map(as_they_arrive)


def first_example(
    strategy: SearchStrategy[T], is_one: Callable[[T], bool], max_examples: int
) -> T | None:
    """Return the smallest example found for a condition, or None; the same in every run."""
    search = settings(
        max_examples=max_examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        return find(strategy, is_one, settings=search)
    except NoSuchExample:
        return None


@st.composite
def cuts(draw: DrawFn, items: Sequence[T], *, max_batches: int = 6) -> list[list[T]]:
    """
    Cut a sequence into batches, in order; no batch is empty.

    Args:
        draw: Passed by hypothesis.
        items: The sequence.
        max_batches: The maximum number of batches.
    """
    places = st.integers(1, max(1, len(items) - 1))
    borders = draw(st.sets(places, max_size=min(max_batches, len(items)) - 1 if items else 0))
    return [list(items[low:high]) for low, high in pairwise([0, *sorted(borders), len(items)])]


def instants_near(spec: AnySpec, *, gaps: int) -> SearchStrategy[datetime]:
    """Generate event times within a few gaps, at and near the boundaries of a spec's rules."""
    half_gap, delay = _longest(spec.timeout) / 2, spec.watermark_delay or timedelta(0)
    return st.builds(
        lambda half_gaps, delays, nudge: START + half_gaps * half_gap + delays * delay + nudge,
        st.integers(0, 2 * gaps),
        st.integers(0, 1),
        st.sampled_from(NUDGES),
    )


def _longest(timeout: TimeoutPolicy | SessionRules) -> timedelta:
    if isinstance(timeout, SessionRules):
        return timeout.longest
    spans = (deadline.span for deadline in deadlines_of(timeout))
    return max(spans, default=timedelta(hours=1))


def arrival(spec: AnySpec, key: tuple[Any, ...], time: datetime, event: Any) -> Arrival:
    """Return the arrival of an event, with its fields set to the columns of the same names."""
    columns = dict(zip(spec.keys, key, strict=True)) | {spec.event_time: time}
    shared = {
        field.alias: columns[field.name]
        for field in codec_of(spec.event).type.fields
        if field.name in columns
    }
    return Arrival(key, time, attrs.evolve(event, **shared) if shared else event)
