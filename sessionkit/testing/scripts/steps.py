"""
The steps of a script.

Those that act have the names of a driver's methods. Those that expect take what came, and compare.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeAlias, TypeVar, get_args

import attrs

from sessionkit._engine.counts import COUNTED
from sessionkit._instants import Duration
from sessionkit.errors import ScriptError, with_hint
from sessionkit.testing.drivers.kinds import SessionDriver, StatefulDriver
from sessionkit.testing.drivers.picture import EventLine
from sessionkit.testing.drivers.results import BatchResult
from sessionkit.testing.literals import events_table
from sessionkit.testing.pictures.literals import clock_text, literal
from sessionkit.testing.scripts.stage import (
    RowLine,
    SessionLine,
    Stage,
    StoredLine,
    event_line,
    open_line,
    row_line,
    session_line,
    stored_line,
)

P = ParamSpec("P")
D = TypeVar("D", SessionDriver[Any, Any, Any], StatefulDriver[Any, Any, Any])
Kind: TypeAlias = Literal["late", "duplicate", "quarantined", "failed", "failed_output"]
BEFORE_ALL: Final = datetime.min.replace(tzinfo=UTC)


@attrs.frozen
class Mismatch:
    """An expectation that does not hold; its hint is for a run that is right."""

    what: str
    expected: Sequence[str]
    got: Sequence[str]
    hint: str


@attrs.frozen
class Step:
    """
    One line of a script: a value that can be kept, compared, and used in several scripts.

    Make it with the functions that have the names of the steps, such as `add`.
    """

    play: Callable[..., Mismatch | None]
    args: tuple[Any, ...]
    options: Mapping[str, Any]

    def __str__(self) -> str:
        """Return the step as a script writes it."""
        named = [f"{option}={literal(value)}" for option, value in self.options.items()]
        return f"{self.play.__name__}({', '.join([*map(literal, self.args), *named])})"


def step(play: Callable[Concatenate[Stage, P], Mismatch | None]) -> Callable[P, Step]:
    """Turn a function that plays a step into one that writes it into a script."""
    signature = inspect.signature(play)
    parameters = list(signature.parameters.values())[1:]
    written = signature.replace(parameters=parameters, return_annotation=Step)

    @wraps(play)
    def write(*args: P.args, **options: P.kwargs) -> Step:
        written.bind(*args, **options)
        return Step(play, args, options)

    vars(write)["__signature__"] = written
    return write


# -- steps that act ------------------------------------------------------------------------------


@step
def add(
    stage: Stage, key: Any, time_or_event: Any, event: Any = attrs.NOTHING, /, **passthrough: Any
) -> None:
    """
    Add an event to the source; the next batch reads it. See `SessionDriver.add`.

    `add(key, event_time, event)`, or `add(key, event)` where the event has its time. The key is a
    tuple if there are several key columns.
    """
    rest = (time_or_event,) if event is attrs.NOTHING else (time_or_event, event)
    stage.driver.add(key, *rest, **passthrough)


@step
def add_row(stage: Stage, row: Mapping[str, Any], /) -> None:
    """Add a row to the source, by column name; a column that is missing is null."""
    stage.driver.add_row(row)


@step
def add_table(stage: Stage, text: str, /) -> None:
    """Add the rows of a table in text to the source, written as for `events_table`."""
    rows = events_table(stage.driver.spec, text)
    for row in rows:
        stage.driver.add_row(row)
    stage.note = f"rows={len(rows)}"


@step
def run_batch(stage: Stage, /, *, sink_fails: bool = False) -> None:
    """
    Run one micro-batch over the events that wait; if none wait, one without data.

    With `sink_fails` the sink fails after it: nothing came out, and the next batch runs the same
    events again.
    """
    result = stage.driver.run_batch(sink_fails=sink_fails)
    stage.note = _batch_note(result) + (", but the sink failed" if sink_fails else "")


@step
def run_until_idle(stage: Stage, /) -> None:
    """
    Run batches as long as Spark would: one over the events that wait, then without data.

    With a clock in processing time it stops once no event waits and the watermark stands still.
    """
    results = [stage.driver.run_batch()]
    while not stage.driver.is_idle:
        results.append(stage.driver.run_batch())
    stage.note = "; ".join(map(_batch_note, results))


@step
def advance_watermark_to(stage: Stage, instant: datetime, /) -> None:
    """Move the watermark of the next batch; an earlier one is ignored, as Spark ignores it."""
    stage.driver.advance_watermark_to(instant)
    if (stays := stage.driver.watermark) != instant:
        stage.note = f"ignored: the watermark stays at {clock_text(stays)}" if stays else ""


@step
def advance_processing_time(stage: Stage, span: Duration, /) -> None:
    """Move the processing time of the next batch; the script must have been given one."""
    stage.driver.advance_processing_time(span)


@step
def restart(stage: Stage, /) -> None:
    """
    Stop the query and start it again from what it left.

    As in Spark, nothing that is due happens until new data has come.
    """
    stage.driver._start(stage.driver.snapshot())  # noqa: SLF001 (what came out so far stays)


def _batch_note(result: BatchResult[Any]) -> str:
    if result.batch_id is None:
        return "no batch: no event waits, and nothing is due"
    at_watermark = "" if result.watermark is None else f" at {clock_text(result.watermark)}"
    counts = attrs.asdict(result.counts, filter=lambda _, number: bool(number))
    shown = ", ".join(f"{name}={number}" for name, number in counts.items())
    return f"batch {result.batch_id}{at_watermark}: {shown or 'no event'}"


# -- steps that expect ---------------------------------------------------------------------------


@step
def expect_results(stage: Stage, /, *results: Any) -> Mismatch | None:
    """
    Expect exactly these results since the last time, in the order of `take_results` of the driver.

    That is the order of keys, and of starts for sessions. Without results: expect that none came.
    """
    got = [row.result for row in stage.driver.take_rows()]
    return _compare(expect_results, "the results are not as expected", results, got)


@step
def expect_rows(stage: Stage, /, *rows: RowLine) -> Mismatch | None:
    """Expect exactly these result rows, each `(key, result)`, as `expect_results` does."""
    got = [row_line(row) for row in stage.driver.take_rows()]
    return _compare(expect_rows, "the rows are not as expected", rows, got)


@step
def expect_sessions(stage: Stage, /, *sessions: SessionLine) -> Mismatch | None:
    """
    Expect exactly these sessions, each `(key, start, end, result)`, as `expect_results` does.

    The end is exclusive. For a `SessionSpec`.
    """
    driver = _driver_of(stage, SessionDriver, expect_sessions, instead=expect_rows)
    got = list(map(session_line, driver.take_rows()))
    return _compare(expect_sessions, "the closed sessions are not as expected", sessions, got)


@step
def expect_open(stage: Stage, /, *sessions: SessionLine) -> Mismatch | None:
    """
    Expect exactly these sessions, each `(key, start, end, state)`, to be open; or none.

    For a `SessionSpec`.
    """
    driver = _driver_of(stage, SessionDriver, expect_open, instead=expect_stored)
    got = list(map(open_line, driver.open_sessions()))
    return _compare(expect_open, "the open sessions are not as expected", sessions, got)


@step
def expect_stored(stage: Stage, /, *keys: StoredLine) -> Mismatch | None:
    """
    Expect exactly these keys to be stored, or none.

    Each is `(key, state)`, or `(key, state, {name: time})` where timers are set; a key that has
    only timers has None for its state. For a `StatefulSpec`.
    """
    driver = _driver_of(stage, StatefulDriver, expect_stored, instead=expect_open)
    got = list(map(stored_line, driver.stored_keys()))
    return _compare(expect_stored, "the stored keys are not as expected", keys, got)


@step
def expect_rejected(stage: Stage, kind: Kind, /, *events: EventLine) -> Mismatch | None:
    """
    Expect exactly these events, each `(key, event time)`, to have been rejected; or none.

    Those since they were last expected, in any order. The kind is `late`, `duplicate`,
    `quarantined` or `failed`; or `failed_output` for the sessions and timers whose function failed,
    with None for the event time.
    """
    if kind not in get_args(Kind):
        hint = f"write one of {', '.join(map(repr, get_args(Kind)))}"
        raise ScriptError(with_hint(f"{kind!r} isn't a kind of rejection", hint))
    got = sorted(map(event_line, stage.driver.take_rejections(kind)), key=_by_key_and_time)
    wanted = sorted(events, key=_by_key_and_time)
    return _compare(expect_rejected, f"the {kind} events are not as expected", wanted, got, kind)


@step
def expect_counts(stage: Stage, /, **counts: int) -> Mismatch | None:
    """Expect these `Counts` since the script began; those that are not named are not compared."""
    unknown = sorted(counts.keys() - set(COUNTED))
    if unknown or not counts:
        found = f"there is no count `{unknown[0]}`" if unknown else "no count is named"
        raise ScriptError(with_hint(found, f"name {', '.join(COUNTED)}"))
    got = {name: getattr(stage.driver.counts, name) for name in counts}
    if counts == got:
        return None
    wanted, had = ([f"{name}={number}" for name, number in some.items()] for some in (counts, got))
    hint = f"if what came is right: {expect_counts(**got)}"
    return Mismatch("the counts are not as expected", wanted, had, hint)


@step
def expect_nothing(stage: Stage, /) -> Mismatch | None:
    """Expect that no row came and nothing was rejected since they were last expected."""
    return _nothing_left(stage, "something came out")


def end_of_script(stage: Stage) -> Mismatch | None:
    """Expect that nothing is left: no output that no step expected, no event that no batch read."""
    waiting = [f"waiting for a batch: {literal(event)}" for event in stage.run.waiting]
    return _nothing_left(stage, "the script ends, and something is left", waiting)


# -- what the expectations share -----------------------------------------------------------------


def _compare(
    write: Callable[..., Step], what: str, expected: Sequence[Any], got: Sequence[Any], *first: Any
) -> Mismatch | None:
    """Compare in order; the hint is the step that would have held."""
    if list(expected) == list(got):
        return None
    wanted, found = list(map(literal, expected)), list(map(literal, got))
    hint = f"if what came is right: {write(*first, *got)}"
    if wanted == found:
        hint = "they look alike: define equality in their class, as attrs classes do"
    return Mismatch(what, wanted, found, hint)


def _driver_of(
    stage: Stage, driver: type[D], expect: Callable[..., Step], *, instead: Callable[..., Step]
) -> D:
    """Return the driver of a stage, if it is of the kind that the step is for."""
    if isinstance(stage.driver, driver):
        return stage.driver
    name, other = expect.__name__, instead.__name__
    found = f"`{name}` isn't for the spec of this script, a {type(stage.driver.spec).__name__}"
    raise ScriptError(with_hint(found, f"write {other}(...)"))


def _nothing_left(stage: Stage, what: str, waiting: Sequence[str] = ()) -> Mismatch | None:
    """Expect that no output is left; the hint is a step that would have expected part of it."""
    of_sessions = isinstance(stage.driver, SessionDriver)
    line: Callable[[Any], Any] = session_line if of_sessions else row_line
    rows, rejections = stage.driver.take_rows(), stage.driver.take_rejections()
    left = [f"{'closed' if of_sessions else 'row'}: {literal(line(row))}" for row in rows]
    for one in rejections:
        reason, _, _ = one.reason.partition("\n")
        left.append(f"{one.kind}: {literal(event_line(one))}, {reason}")
    if waiting:
        hint = "end the script with run_batch()"
    elif rows:
        expect = expect_sessions if of_sessions else expect_rows
        hint = f"if that is right: {expect(*map(line, rows))}"
    elif rejections:
        kind: Any = rejections[0].kind
        chosen = [event_line(one) for one in rejections if one.kind == kind]
        hint = f"if that is right: {expect_rejected(kind, *chosen)}"
    else:
        return None
    return Mismatch(what, [], [*left, *waiting], hint)


def _by_key_and_time(event: EventLine) -> tuple[str, datetime]:
    key, time = event
    return repr(key), time or BEFORE_ALL
