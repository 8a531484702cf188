"""
A test as a list of steps, which shows the whole list and a picture of the run where it fails.

A step is a frozen value. Steps that act have the names of the methods of `SessionDriver`; steps
that expect start with `expect_`. What came out and was not expected by the end is a failure too.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeAlias, cast, get_args

import attrs

from sessionkit._engine.counts import Counts
from sessionkit.errors import ExpectationError, ScriptError, SessionkitError, with_hint
from sessionkit.session import SessionSpec
from sessionkit.testing.drivers.results import BatchResult
from sessionkit.testing.drivers.session import SessionDriver
from sessionkit.testing.scripts.literals import clock_text, literal
from sessionkit.testing.scripts.picture import Mismatch, call_text, failure_text, script_text
from sessionkit.testing.scripts.stage import EventLine, SessionLine, Stage, event_line, session_line
from sessionkit.testing.scripts.text_tables import events_table

__all__ = [
    "Step",
    "add",
    "add_row",
    "add_table",
    "advance_processing_time",
    "advance_watermark_to",
    "expect_counts",
    "expect_nothing",
    "expect_open",
    "expect_rejected",
    "expect_results",
    "expect_sessions",
    "restart",
    "run_batch",
    "run_script",
    "run_until_idle",
]

P = ParamSpec("P")
Kind: TypeAlias = Literal["late", "quarantined", "failed", "failed_output", "dropped"]

END: Final = "(end of the script)"
BEFORE_ALL: Final = datetime.min.replace(tzinfo=UTC)


@attrs.frozen
class Step:
    """
    One line of a script: a value that can be kept, compared, and used in several scripts.

    Only the functions with the names of the steps make it, such as `add` and `expect_results`.
    """

    play: Callable[..., Mismatch | None]
    args: tuple[Any, ...]
    options: Mapping[str, Any]

    def __str__(self) -> str:
        """Return the step as a script writes it."""
        return call_text(self.play.__name__, self.args, self.options)


def _step(play: Callable[Concatenate[Stage, P], Mismatch | None]) -> Callable[P, Step]:
    """Make, of a function that plays a step, the one that writes it into a script."""
    signature = inspect.signature(play)
    written = signature.replace(
        parameters=list(signature.parameters.values())[1:], return_annotation=Step
    )

    @wraps(play)
    def write(*args: P.args, **options: P.kwargs) -> Step:
        written.bind(*args, **options)
        return Step(play, args, options)

    vars(write)["__signature__"] = written
    return write


def run_script(
    spec: SessionSpec[Any, Any, Any],
    steps: Iterable[Step],
    *,
    processing_time: datetime | None = None,
) -> SessionDriver[Any, Any, Any]:
    """
    Play a script on a `SessionDriver`, without Spark and without a JVM.

    Args:
        spec: The definition of a session.
        steps: What happens and what is expected, in order.
        processing_time: The processing time of the first batch, with a time zone.

    Returns:
        The driver as the script leaves it.

    Raises:
        ExpectationError: Something else came than was expected, or something is left at the end:
            a session or a rejection that no step expected, an event that no batch has read. The
            text shows the script, what was expected beside what came, and a timeline.
        ScriptError: A step is impossible; the text shows the script and a timeline.
        UserFunctionError: A function of the spec failed under `on_error="raise"`; the script and
            a timeline are added as a note.
    """
    __tracebackhide__ = True  # pytest then points at the script
    script = [*_checked(steps), Step(end_of_script, (), {})]
    stage = Stage(SessionDriver(spec, processing_time=processing_time))
    notes: list[str] = []
    for place, step in enumerate(script):
        stage.note = ""
        try:
            mismatch = step.play(stage, *step.args, **step.options)
        except ScriptError as error:
            picture = _picture(stage, script, notes)
            text = f"step {place + 1} is impossible: {error}\n\n{picture}"
            raise ScriptError(text) from error
        except SessionkitError as error:
            error.add_note(_picture(stage, script, notes))
            raise
        if mismatch is not None:
            raise ExpectationError(
                failure_text(mismatch, place + 1, _picture(stage, script, notes))
            )
        notes.append(stage.note)
    return stage.driver


# -- steps that act ----------------------------------------------------------------------------


@_step
def add(
    stage: Stage, key: Any, event_time: datetime | None, event: Any, /, **passthrough: Any
) -> None:
    """
    Put an event before the source; it is read by the next batch. See `SessionDriver.add`.

    The key is a tuple where there are several key columns.
    """
    stage.driver.add(key, event_time, event, **passthrough)


@_step
def add_row(stage: Stage, row: Mapping[str, Any], /) -> None:
    """Put a row before the source, by its column names; what is missing is a null."""
    stage.driver.add_row(row)


@_step
def add_table(stage: Stage, text: str, /) -> None:
    """Put the rows of a table in text before the source, written as for `events_table`."""
    rows = events_table(stage.driver.spec, text)
    for row in rows:
        stage.driver.add_row(row)
    stage.note = f"rows={len(rows)}"


@_step
def run_batch(stage: Stage, /, *, sink_fails: bool = False) -> None:
    """
    Run one micro-batch over the events that wait; without any, one without data.

    With `sink_fails` the sink fails behind it: nothing came out, and the next batch runs the same
    events again.
    """
    result = stage.run_batch(sink_fails=sink_fails)
    stage.note = _batch_note(result) + (", but the sink failed" if sink_fails else "")


@_step
def run_until_idle(stage: Stage, /) -> None:
    """
    Run batches as long as Spark would: one over the events that wait, then without data.

    With a clock in processing time it stops once no event waits and the watermark stands still.
    """
    results = [stage.run_batch(sink_fails=False)]
    while not stage.driver.is_idle:
        results.append(stage.run_batch(sink_fails=False))
    stage.note = "; ".join(map(_batch_note, results))


@_step
def advance_watermark_to(stage: Stage, instant: datetime, /) -> None:
    """Move the watermark of the next batch; it never goes back."""
    stage.driver.advance_watermark_to(instant)


@_step
def advance_processing_time(stage: Stage, span: timedelta, /) -> None:
    """Move the processing time of the next batch; the script must have been given one."""
    stage.driver.advance_processing_time(span)


@_step
def restart(stage: Stage, /) -> None:
    """
    Stop the query and start it again from what it left behind.

    As in Spark, sessions that are due do not close before new data has come.
    """
    stage.restart()


# -- steps that expect -------------------------------------------------------------------------


@_step
def expect_results(stage: Stage, /, *rows: Any) -> Mismatch | None:
    """
    Expect exactly these result rows of the sessions that closed since they were last expected.

    They come in order of key and start. Without rows: expect that no session closed.
    """
    got = [session.result for session in stage.take_sessions()]
    return _compare(expect_results, "the results are not as expected", rows, got)


@_step
def expect_sessions(stage: Stage, /, *sessions: SessionLine) -> Mismatch | None:
    """
    Expect exactly these sessions, each `(key, start, end, result row)`, to have closed.

    Those since they were last expected, in order of key and start; the end is exclusive.
    """
    got = [session_line(session) for session in stage.take_sessions()]
    return _compare(expect_sessions, "the closed sessions are not as expected", sessions, got)


@_step
def expect_open(stage: Stage, /, *sessions: SessionLine) -> Mismatch | None:
    """Expect exactly these sessions, each `(key, start, end, state)`, to be open; or none."""
    return _compare(
        expect_open, "the open sessions are not as expected", sessions, stage.open_lines()
    )


@_step
def expect_rejected(stage: Stage, kind: Kind, /, *events: EventLine) -> Mismatch | None:
    """
    Expect exactly these events, each `(key, event time)`, to have been rejected; or none.

    Those since they were last expected, in any order. The kind is `late`, `quarantined`,
    `failed`, or `dropped` for what Spark drops behind its own watermark; or `failed_output` for the
    sessions whose `finish` failed, with None for the event time.
    """
    if kind not in get_args(Kind):
        hint = f"write one of {', '.join(map(repr, get_args(Kind)))}"
        raise ScriptError(with_hint(f"there is no kind {kind!r} of rejection", hint))
    got = sorted(map(event_line, stage.take_rejections(kind)), key=_by_key_and_time)
    wanted = sorted(events, key=_by_key_and_time)
    return _compare(expect_rejected, f"the {kind} events are not as expected", wanted, got, kind)


@_step
def expect_counts(stage: Stage, /, **counts: int) -> Mismatch | None:
    """Expect these of the `Counts` since the script began; those not named are not compared."""
    unknown = sorted(counts.keys() - attrs.fields_dict(Counts).keys())
    if unknown or not counts:
        found = f"there is no count `{unknown[0]}`" if unknown else "no count is named"
        raise ScriptError(with_hint(found, f"name {', '.join(attrs.fields_dict(Counts))}"))
    got = {name: getattr(stage.driver.counts, name) for name in counts}
    if counts == got:
        return None
    wanted, had = ([f"{name}={number}" for name, number in some.items()] for some in (counts, got))
    hint = f"if what came is right: {expect_counts(**got)}"
    return Mismatch("the counts are not as expected", wanted, had, hint)


@_step
def expect_nothing(stage: Stage, /) -> Mismatch | None:
    """Expect that since they were last expected no session closed and nothing was rejected."""
    got = _output(stage)
    return Mismatch("something came out", [], got, _how_to_expect(stage)) if got else None


def end_of_script(stage: Stage) -> Mismatch | None:
    """Expect that nothing is left: no output that no step expected, no event that none read."""
    waiting = [f"waiting for a batch: {literal(event)}" for event in stage.waiting()]
    left = [*_output(stage), *waiting]
    if not left:
        return None
    hint = "end the script with run_batch()" if waiting else _how_to_expect(stage)
    return Mismatch("the script ends, and something is left", [], left, hint)


# -- what the steps share ----------------------------------------------------------------------


def _checked(steps: Iterable[Step]) -> list[Step]:
    script = list(steps)
    for number, step in enumerate(script, start=1):
        if not isinstance(step, Step):
            found = f"step {number} is no step of a script, found {step!r}"
            raise ScriptError(with_hint(found, "write add(...), run_batch(), expect_results(...)"))
    return script


def _picture(stage: Stage, script: Sequence[Step], notes: Sequence[str]) -> str:
    """Draw the run so far; the end is shown as a step only where that is what fails."""
    lines = [*map(str, script[:-1]), *([END] if len(notes) == len(script) - 1 else [])]
    return script_text(lines, notes, stage.timeline())


def _batch_note(result: BatchResult[Any]) -> str:
    if result.batch_id is None:
        return "no batch: no event waits, and nothing is due"
    at_watermark = "" if result.watermark is None else f" at {clock_text(result.watermark)}"
    counts = attrs.asdict(result.counts, filter=lambda _, number: bool(number))
    told = ", ".join(f"{name}={number}" for name, number in counts.items())
    return f"batch {result.batch_id}{at_watermark}: {told or 'no event'}"


def _compare(
    write: Callable[..., Step], what: str, expected: Sequence[Any], got: Sequence[Any], *first: Any
) -> Mismatch | None:
    """Compare in order; the hint is the step that would have held."""
    if list(expected) == list(got):
        return None
    wanted, found = list(map(literal, expected)), list(map(literal, got))
    hint = f"if what came is right: {write(*first, *got)}"
    if wanted == found:
        hint = "they look alike: let their class define equality, as attrs classes do"
    return Mismatch(what, wanted, found, hint)


def _output(stage: Stage) -> list[str]:
    closed = [f"closed: {literal(session_line(session))}" for session in stage.sessions]
    rejected = [
        f"{rejection.kind}: {literal(event_line(rejection))}, {_first_line(rejection.reason)}"
        for rejection in stage.rejections
    ]
    return [*closed, *rejected]


def _how_to_expect(stage: Stage) -> str:
    """Return a step that expects part of what is left."""
    if stage.sessions:
        step = expect_sessions(*map(session_line, stage.sessions))
    else:
        kind = stage.rejections[0].kind
        chosen = [event_line(one) for one in stage.rejections if one.kind == kind]
        step = expect_rejected(cast("Kind", kind), *chosen)
    return f"if that is right: {step}"


def _by_key_and_time(event: EventLine) -> tuple[str, datetime]:
    key, time = event
    return repr(key), time or BEFORE_ALL


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
