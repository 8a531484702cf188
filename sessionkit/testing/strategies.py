"""
Hypothesis strategies for tests of specs, and checks that find specs that go wrong on a stream.

Needs hypothesis: `pip install "sessionkit-spark[hypothesis]"`.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import chain, zip_longest
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa

from sessionkit._package import check_extra
from sessionkit.spec.calls import check_kind

try:
    from hypothesis import strategies as st
    from hypothesis.errors import Flaky
    from hypothesis.strategies import SearchStrategy
except ModuleNotFoundError:
    check_extra("hypothesis", "hypothesis", f"`{__name__}`", "where the tests run")
    raise

from sessionkit._arguments import explains
from sessionkit._engine.sessions.folds import states_of
from sessionkit._engine.sessions.plan import Horizon
from sessionkit._engine.sessions.program import Program
from sessionkit._engine.sessions.verdicts import join
from sessionkit.errors import (
    ExpectationError,
    SpecError,
    StateValueError,
    UserFunctionError,
    with_hint,
)
from sessionkit.spec.base import AnySpec
from sessionkit.spec.session import AnySessionSpec, SessionSpec
from sessionkit.spec.stateful import StatefulSpec
from sessionkit.state._codec import codec_of, encode_column
from sessionkit.state._fields import attributes_of, is_record
from sessionkit.state._scalars import DatetimeType
from sessionkit.testing.drivers.kinds import SessionDriver, StatefulDriver
from sessionkit.testing.drivers.watch import counting
from sessionkit.testing.generators import (
    START,
    Arrival,
    arrival,
    cuts,
    first_example,
    instants_near,
    keys_of,
    objects_of,
    timelines,
)
from sessionkit.testing.literals import plain_key

__all__ = ["check_merge_law", "check_spec", "objects_of", "timelines"]

MOST_EVENTS: Final = 5
TIME: Final = "%Y-%m-%d %H:%M:%S.%f"
ROUNDING: Final = 1e-9
Batches: TypeAlias = list[list[Arrival]]


@explains
def check_spec(
    spec: AnySpec, events: SearchStrategy[Any] | None = None, *, max_examples: int = 50
) -> None:
    """
    Check that a spec works on a stream: the first test to write for a spec.

    It runs generated events on the driver of the spec, and looks for:

    * a function that fails for an event that its class allows, and so stops the query;
    * a state that is changed without `set`, or made anew and not returned by `update`;
    * functions that give another result when the same events run again, because they read a clock,
      random numbers, or data left by other calls;
    * a `SessionSpec` whose session depends on the order of events, see `check_merge_law`;
    * a `StatefulSpec` whose state depends on how events are cut into micro-batches, under
      `order="arrival"`.

    Each run of the same program tries the same examples. It takes a few seconds, and starts no
    Spark.

    Example:
        from sessionkit.testing.strategies import check_spec

        # visits: the spec in the example of SessionSpec.of
        def test_the_visits_are_right_on_a_stream():
            check_spec(visits)

    Args:
        spec: The definition, a `SessionSpec` or a `StatefulSpec`.
        events: A strategy of hypothesis for the events, as for `check_merge_law`.
        max_examples: The number of timelines in each search; `check_merge_law` tries four times as
            many.

    Raises:
        ExpectationError: The spec has one of these problems; the text shows all that were found,
            each with the fewest events that show it.
        SpecError: A field of the event class cannot be generated; pass `events`.
    """
    check_kind(spec)
    _check_strategy(events)
    spec, unreturned = counting(spec)
    runs = _runs(spec, events)
    failing = _failing(spec, runs, max_examples)
    others = [look(spec, runs, max_examples) for look in (_unstable, _by_cut)]
    try:
        if isinstance(spec, SessionSpec):
            check_merge_law(spec, events, max_examples=4 * max_examples)
    except ExpectationError as error:
        others.append(str(error))
    except FAILURES as error:
        failing = failing or FAILS.format(error)
    others += [with_hint(*found) for function in unreturned if (found := function.finding())]
    problems = [text for text in (failing, *others) if text is not None]
    if problems:
        count = "something" if len(problems) == 1 else f"{len(problems)} things"
        texts = "\n\n".join(f"{number}. {text}" for number, text in enumerate(problems, start=1))
        msg = f"{count} in this {type(spec).__name__} will go wrong on a stream\n\n{texts}"
        raise ExpectationError(msg)


@explains
def check_merge_law(
    spec: AnySessionSpec, events: SearchStrategy[Any] | None = None, *, max_examples: int = 200
) -> None:
    """
    Check that `create`, `update` and `merge` give the same session for any order of arrival.

    It makes the sessions of a key twice from the same events: in one micro-batch, and in another
    order over several, where an event comes after a later one, or between two open sessions that
    are then merged. The states are compared by `==`, floats within rounding. Under
    `order="event_time"`, events are taken in time order and sessions never merged, so there is
    nothing to check.

    Each run of the same program tries the same examples. It takes a few seconds, and starts no
    Spark.

    Args:
        spec: A `SessionSpec` with functions. Neither its watermark nor `finish` matters.
        events: A strategy of hypothesis for the events; by default objects of the event class with
            modest values, so that sums of floats don't depend on their order. If a field of the
            class has the name of the event time or of a key column, it gets that value.
        max_examples: The number of timelines to try.

    Raises:
        ExpectationError: The functions give two different states; the text shows the fewest
            events and micro-batches that show it.
        UserFunctionError: A function failed for one of the events.
        SpecError: A field of the event class cannot be generated; pass `events`.
    """
    check_kind(spec, SessionSpec, "check_spec")
    _check_strategy(events)
    if spec.order == "event_time":
        return
    batches = first_example(_dealt(spec, events), partial(_differ, spec), max_examples)
    if batches is not None:
        batches = _smallest(spec, batches)
        pairs = zip(*_both(spec, batches), strict=True)
        (_, apart), (_, together) = next(pair for pair in pairs if not alike(*pair))
        raise ExpectationError(
            _two_states(
                f"the same events give two different {spec.state.__name__}, by the order in which "
                "they arrive:",
                batches,
                apart,
                together,
                "make create, update and merge give the same for every order, for example by "
                "storing the time with what they keep; or fold in time order, with "
                'order="event_time"',
            )
        )


def _check_strategy(events: object) -> None:
    if not isinstance(events, SearchStrategy | None):
        found = f"`events` must be a strategy of Hypothesis, found {events!r}"
        raise SpecError(found, "write events=objects_of(View), or st.sampled_from([View(...)])")


# -- runs on a driver ----------------------------------------------------------------------------

FAILURES: Final = (UserFunctionError, StateValueError)
"""What stops a query: a function fails, or leaves what doesn't fit."""
FAILS: Final = "a function fails, and the query stops:\n{}"
LAST: Final = START + timedelta(days=1000)
LONG: Final = timedelta(days=2000)


def _runs(spec: AnySpec, events: SearchStrategy[Any] | None) -> SearchStrategy[Batches]:
    """Generate micro-batches of up to two keys, in time order, no two events at one instant."""
    made = objects_of(spec.event, modest=True) if events is None else events
    some_keys = st.lists(keys_of(spec), min_size=1, max_size=2)

    def of_keys(keys: list[tuple[Any, ...]]) -> SearchStrategy[list[Any]]:
        parts = st.tuples(st.sampled_from(keys), instants_near(spec, gaps=3), made)
        return st.lists(parts, min_size=1, max_size=MOST_EVENTS, unique_by=itemgetter(1))

    def in_time_order(parts: list[Any]) -> list[Arrival]:
        return [arrival(spec, *part) for part in sorted(parts, key=itemgetter(1))]

    return some_keys.flatmap(of_keys).map(in_time_order).flatmap(cuts)


def _driver(spec: Any, batches: Batches) -> Any:
    """Return a driver that has run these micro-batches, at a time after all events."""
    driver: Any = StatefulDriver if isinstance(spec, StatefulSpec) else SessionDriver
    driver = driver(spec, processing_time=LAST)
    for batch in batches:
        for event in batch:
            driver.add(*event)
        driver.run_batch()
    return driver


def _outcome(
    spec: AnySpec, batches: Batches
) -> tuple[Any, ...] | UserFunctionError | StateValueError:
    """Return the output after all sessions and timers, or the error that stops the query."""
    try:
        driver = _driver(spec, batches)
        if spec.watermark_delay is not None:
            driver.advance_watermark_to(LAST)
        if spec.clock == "processing_time":
            driver.advance_processing_time(LONG)
        driver.run_until_idle()
    except FAILURES as error:
        return error
    return driver.take_rows(), driver.take_rejections()


def _failing(spec: AnySpec, runs: SearchStrategy[Batches], max_examples: int) -> str | None:
    def fails(batches: Batches) -> bool:
        return isinstance(_outcome(spec, batches), FAILURES)

    batches = first_example(runs, fails, max_examples)
    if batches is None:
        return None
    return FAILS.format(f"{_listed(batches)}\n{_outcome(spec, batches)}")


def _unstable(spec: AnySpec, runs: SearchStrategy[Batches], max_examples: int) -> str | None:
    seen: list[tuple[Batches, Any, Any]] = []

    def differ(batches: Batches) -> bool:
        first, second = _outcome(spec, batches), _outcome(spec, batches)
        errors = isinstance(first, FAILURES) or isinstance(second, FAILURES)
        if not errors and not alike(first, second):
            seen.append((batches, first, second))
        return bool(seen) and seen[-1][0] is batches

    # Hypothesis may fail to reproduce an unstable result.
    with suppress(Flaky):
        first_example(runs, differ, max_examples)
    if not seen:
        return None
    batches, first, second = min(seen, key=lambda example: sum(map(len, example[0])))
    pairs = zip_longest(chain(*first), chain(*second))
    left, right = next(pair for pair in pairs if not alike(*pair))
    text = f"the same events give two results:\n{_listed(batches)}\n  {left!r}\n  {right!r}"
    hint = "let the functions depend on what they are given alone: on no clock, no random number"
    return with_hint(text, f"{hint}, nothing that other calls leave")


def _by_cut(spec: AnySpec, runs: SearchStrategy[Batches], max_examples: int) -> str | None:
    """Compare the state of keys with their state after one micro-batch; no timer fires."""
    if not isinstance(spec, StatefulSpec) or spec.order == "event_time":
        return None
    if spec.watermark_delay is not None:
        spec = attrs.evolve(spec, watermark_delay=LONG)

    def states(batches: Batches) -> list[Any] | None:
        try:
            return [(stored.key, stored.state) for stored in _driver(spec, batches).stored_keys()]
        except FAILURES:
            return None

    def differ(batches: Batches) -> bool:
        together, apart = states([list(chain(*batches))]), states(batches)
        return None not in (together, apart) and not alike(together, apart)

    batches = first_example(runs, differ, max_examples)
    if batches is None:
        return None
    return _two_states(
        "another cut into micro-batches gives another state:",
        batches,
        states(batches),
        states([list(chain(*batches))]),
        "how events fall into micro-batches is chance: let the state depend on the events alone",
    )


def _two_states(title: str, batches: Batches, apart: Any, together: Any, hint: str) -> str:
    """Return the error text for two cuts of the same events with different states."""
    states = f"  in these {len(batches)}: {apart!r}\n  in one: {together!r}"
    return with_hint(f"{title}\n{_listed(batches)}\n{states}", hint)


def _listed(batches: Batches) -> str:
    return "\n".join(
        f"  micro-batch {number}  {plain_key(row.key)!r}  {row.event_time:{TIME}}  {row.event!r}"
        for number, batch in enumerate(batches, start=1)
        for row in batch
    )


# -- the merge law -------------------------------------------------------------------------------


def _dealt(spec: AnySessionSpec, events: SearchStrategy[Any] | None) -> SearchStrategy[Batches]:
    """Generate events of one key, put into micro-batches at random."""
    made = objects_of(spec.event, modest=True) if events is None else events
    parts = st.tuples(instants_near(spec, gaps=3), made, st.integers(0, MOST_EVENTS - 1))

    def in_batches(key: tuple[Any, ...], parts: list[Any]) -> Batches:
        batches: Batches = [[] for _ in range(MOST_EVENTS)]
        for time, event, batch in sorted(parts, key=itemgetter(0)):
            batches[batch].append(arrival(spec, key, time, event))
        return [batch for batch in batches if batch]

    # One key is enough: no function sees the states of two keys.
    several = st.lists(parts, min_size=2, max_size=MOST_EVENTS)
    return st.builds(in_batches, keys_of(spec), several)


def _differ(spec: AnySessionSpec, batches: Batches) -> bool:
    return not alike(*_both(spec, batches))


def _smallest(spec: AnySessionSpec, batches: Batches) -> Batches:
    """Leave out events that don't matter; hypothesis can't shrink events of many fields."""
    for left_out in chain(*batches):
        fewer = [[row for row in batch if row is not left_out] for batch in batches]
        fewer = [batch for batch in fewer if batch]
        if fewer and _differ(spec, fewer):
            return _smallest(spec, fewer)
    return batches


def _both(spec: AnySessionSpec, batches: Batches) -> tuple[list[Any], list[Any]]:
    """Return the open sessions after these micro-batches, and after one in time order."""
    in_order = sorted(chain(*batches), key=attrgetter("event_time"))
    return _folded(spec, batches), _folded(spec, [in_order])


def _events(spec: AnySessionSpec, arrivals: Sequence[Arrival]) -> pa.Table:
    columns = [
        encode_column(field.type, [arrival.key[place] for arrival in arrivals], field.name)
        for place, field in enumerate(spec.key_fields)
    ]
    times = [arrival.event_time for arrival in arrivals]
    columns.append(encode_column(DatetimeType(), times, spec.event_time))
    columns += codec_of(spec.event).encode([arrival.event for arrival in arrivals])
    columns += [pa.nulls(len(arrivals), field.type.arrow) for field in spec.passthrough_fields]
    return pa.Table.from_arrays(columns, schema=spec.events_schema)


def _folded(spec: AnySessionSpec, batches: Batches) -> list[tuple[int, Any]]:
    """Return the event count and the state of each open session."""
    program = Program.of(spec)
    sessions = program.schema.empty_table()
    for batch in batches:
        sessions = join(program, sessions, _events(spec, batch), Horizon()).sessions
    sessions = sessions.sort_by("start")
    return list(zip(sessions["events"].to_pylist(), states_of(spec, sessions), strict=True))


def alike(left: Any, right: Any) -> bool:
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
            return len(left) == len(right) and all(map(alike, left, right))
        case Mapping():
            return left.keys() == right.keys() and all(alike(left[k], right[k]) for k in left)
    return is_record(left.__class__) and all(
        alike(getattr(left, field.name), getattr(right, field.name))
        for field in attributes_of(left.__class__)
        if field.eq
    )
