"""Specs and streams that hypothesis makes up: bad rows, poison, late events, cuts and restarts."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from sessionkit import (
    EventTimeGap,
    Functions,
    Inputs,
    Lateness,
    Results,
    Session,
    SessionRules,
    SessionSpec,
    Storage,
)
from sessionkit.testing.generators import Arrival, cuts
from sessionkit.testing.strategies import timelines

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]
Row: TypeAlias = dict[str, Any]

SCHEMA: Final = pa.schema(
    {
        "key": pa.string(),
        "at": pa.timestamp("us", tz="UTC"),
        "value": pa.int64(),
        "gap_s": pa.int64(),
        "offset": pa.int64(),
    }
)
GAP: Final = timedelta(seconds=10)
POISON: Final = 13
EARLY: Final = ["on_update", "every 3 events", "every 15 seconds"]
LATER: Final = [{"allowed": 2 * GAP}, {"reopen_within": GAP}]
FAULTS: Final[dict[str, Row]] = {
    "no key": {"key": None},
    "no time": {"at": None},
    "no value": {"value": None},
    "before 1970": {"at": datetime(1969, 12, 31, tzinfo=UTC)},
    "far ahead": {"at": datetime(2200, 1, 1, tzinfo=UTC)},
}


@attrs.frozen
class Event:
    """An event: a number, and the gap that it asks for."""

    value: int
    gap_s: int


@attrs.define
class State:
    """The numbers so far, in the order in which they were processed: nothing can hide."""

    values: list[int]


@attrs.frozen
class Result:
    """The same, and how many events the library counted."""

    values: list[int]
    events: int


@attrs.frozen
class Stretch:
    """What happens between the start of a query and its stop."""

    batches: list[list[Row]]
    pauses: bool


@attrs.frozen
class Script:
    """A spec, and the life of a query: between two stretches it is restarted."""

    spec: AnySpec
    stretches: list[Stretch]


def is_poison(value: int) -> bool:
    """Tell of 13, 22 and so on."""
    return value >= POISON and value % 9 == POISON % 9


def create(key: Any, event: Event) -> State:
    """Start with one number; some are poison."""
    return update(State([]), event)


def update(state: State, event: Event) -> State:
    """Add a number, and fail after that where it is poison."""
    state.values.append(event.value)
    if is_poison(event.value):
        message = "poison"
        raise ValueError(message)
    return state


def merge(left: State, right: State) -> State:
    return State(left.values + right.values)


def fussy_merge(left: State, right: State) -> State:
    if (left.values[-1] + right.values[0]) % 3 == 0:
        message = f"{left} does not go with {right}"
        raise ValueError(message)
    return merge(left, right)


def finish(session: Session, state: State) -> Result:
    return Result(state.values, session.events)


def fussy_finish(session: Session, state: State) -> list[Result]:
    """Hand the numbers out, twice where they are odd, and fail for some."""
    if sum(state.values) % 4 == 0:
        message = "no fours"
        raise ValueError(message)
    return [Result(state.values, session.events)] * (1 + sum(state.values) % 2)


def own_gap(event: Event) -> timedelta:
    """Return the gap that an event asks for; not all can be had."""
    return timedelta(seconds=event.gap_s)


def gap_by_values(state: State) -> timedelta:
    """Return a gap that shrinks and grows with what was folded."""
    return GAP * (1 + sum(state.values) % 3) / 3


def fussy_gap_by_values(state: State) -> timedelta:
    """Return the same, but not all can be had."""
    return GAP * (sum(state.values) % 4) / 3


def is_three(event: Event) -> bool:
    return event.value == 3


def _rules() -> SearchStrategy[dict[str, Any]]:
    """Make rules that cut sessions; `None` leaves one out."""
    return st.fixed_dictionaries(
        {
            "midnight": st.sampled_from([None, "UTC"]),
            "extends": st.sampled_from([None, pc.field("value") != 2]),
            "opens_with": st.sampled_from([None, None, pc.field("value") != 1]),
        }
    )


def _rules_in_order() -> SearchStrategy[dict[str, Any]]:
    """Make rules that depend on the order of events."""
    return st.fixed_dictionaries(
        {
            "max_duration": st.sampled_from([None, GAP * 1.5]),
            "max_events": st.sampled_from([None, 3]),
            "until": st.sampled_from([None, pc.field("value") == 4]),
            "starts_with": st.sampled_from([None, is_three]),
            "changes_of": st.sampled_from([(), "gap_s"]),
            "state_gap": st.booleans(),
        }
    )


def specs(layout: str, on_error: Sequence[str] = ("raise", "reject")) -> SearchStrategy[AnySpec]:
    """Make specs with every option that changes what happens to an event."""
    return st.builds(
        _spec,
        gap=st.sampled_from([GAP, own_gap]),
        gap_inclusive=st.booleans(),
        rules=st.none() | _rules(),
        rules_in_order=_rules_in_order(),
        on_error=st.sampled_from(on_error),
        watermark_delay=st.sampled_from([timedelta(0), GAP / 2, 2 * GAP]),
        order_and_late_by=st.sampled_from(
            [("arrival", "event"), ("arrival", "session"), ("event_time", "event")]
        ),
        max_buffered_per_key=st.sampled_from([3, 100]),
        emit=st.sampled_from(["on_close"] * 4 + EARLY),
        kept=st.sampled_from([{}] * 2 + LATER),
        drop_duplicates_for=st.sampled_from([None] * 2 + [timedelta(0), 2 * GAP]),
        event_id=st.sampled_from([None, ("value", "gap_s")]),
        bucket_count=st.sampled_from([1, 3]),
        layout=st.just(layout),
    )


def _spec(
    *,
    gap: Any,
    gap_inclusive: Any,
    rules: dict[str, Any] | None,
    rules_in_order: dict[str, Any],
    on_error: Any,
    order_and_late_by: tuple[Any, Any],
    emit: Any,
    kept: dict[str, Any],
    drop_duplicates_for: timedelta | None,
    event_id: tuple[str, ...] | None,
    max_buffered_per_key: int,
    bucket_count: int,
    layout: Any,
    **options: Any,
) -> AnySpec:
    order, judged_by = order_and_late_by
    cuts = {**rules_in_order} if order == "event_time" else {}
    if cuts.pop("state_gap", False) and not callable(gap):
        cuts["state_gap"] = gap_by_values if on_error == "raise" else fussy_gap_by_values
    later = kept if order == "arrival" else {}
    policy: Any = EventTimeGap if rules is None else partial(SessionRules, **rules, **cuts)
    return SessionSpec(
        logic=Functions(
            event=Event,
            state=State,
            result=Result,
            create=create,
            update=update,
            merge=merge if on_error == "raise" else fussy_merge,
            finish=finish if on_error == "raise" else fussy_finish,
        ),
        keys={"key": str},
        event_time="at",
        on_error=on_error,
        timeout=policy(gap, max_gap=GAP if callable(gap) else None, gap_inclusive=gap_inclusive),
        inputs=Inputs(
            passthrough={"offset": int},
            drop_duplicates_for=drop_duplicates_for,
            event_id=event_id,
            max_buffered_per_key=max_buffered_per_key,
        ),
        order=order,
        lateness=Lateness(judged_by=judged_by, **later),
        results=Results(emit=emit),
        storage=Storage(bucket_count=bucket_count, layout=layout),
        **options,
    )


@st.composite
def scripts(draw: DrawFn, *, max_size: int = 24, layout: str = "buckets") -> Script:
    """Make the life of a query; at times it is restarted without anything new."""
    spec = draw(specs(layout))
    keys = st.sampled_from([("a",), ("b",)])
    arrivals = draw(
        timelines(spec, _events(spec), keys=keys, min_size=max_size // 2, max_size=max_size)
    )
    rows = [
        draw(_faulty({**_row(arrival), "offset": offset}))
        for offset, arrival in enumerate(arrivals)
    ]
    stretches = [
        Stretch(batches, draw(st.booleans()))
        for batches in draw(cuts(draw(cuts(rows)), max_batches=3))
    ]
    if draw(st.booleans()):
        stretches.insert(draw(st.integers(1, len(stretches))), Stretch([], pauses=False))
    return Script(spec, stretches)


def _events(spec: AnySpec) -> SearchStrategy[Event]:
    values = [1, 2, 3, 4] if spec.on_error == "raise" else [1, 2, 3, 4, 1, 2, 3, 4, POISON]
    gaps = st.sampled_from([10, 5] * 6 + [0, 11])
    return st.builds(Event, value=st.sampled_from(values), gap_s=gaps)


def _row(arrival: Arrival) -> Row:
    event = arrival.event
    (key,) = arrival.key
    return {"key": key, "at": arrival.event_time, "value": event.value, "gap_s": event.gap_s}


def _faulty(row: Row) -> SearchStrategy[Row]:
    fine: list[Row] = [{}] * 50
    return st.sampled_from([*fine, *FAULTS.values()]).map(lambda fault: {**row, **fault})
