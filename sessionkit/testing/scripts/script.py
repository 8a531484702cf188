"""
A test as a list of steps: a failure shows the whole list and a picture of the run.

Output that no step expected by the end is a failure too.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any, Final, overload

from sessionkit.errors import ExpectationError, ScriptError, SessionkitError, with_hint
from sessionkit.spec.session import SessionSpec
from sessionkit.spec.shared import E, R, S
from sessionkit.spec.stateful import StatefulSpec
from sessionkit.testing.drivers.kinds import SessionDriver, StatefulDriver
from sessionkit.testing.scripts.stage import Stage
from sessionkit.testing.scripts.steps import Step, end_of_script

ARROW: Final = "-->"
LONGEST_LINE: Final = 96
NOTHING: Final = "(nothing)"
MARGIN: Final = "    "
END: Final = "(end of the script)"


@overload
def run_script(
    spec: SessionSpec[E, S, R], steps: Iterable[Step], *, processing_time: datetime | None = None
) -> SessionDriver[E, S, R]: ...
@overload
def run_script(
    spec: StatefulSpec[E, S, R], steps: Iterable[Step], *, processing_time: datetime | None = None
) -> StatefulDriver[E, S, R]: ...
def run_script(spec: Any, steps: Iterable[Step], *, processing_time: datetime | None = None) -> Any:
    """
    Play a script on the driver of a spec, without Spark and without a JVM.

    Example:
        from sessionkit.testing import add, advance_watermark_to, at
        from sessionkit.testing import expect_results, run_batch, run_script

        # View, Visit and visits: as in the example of SessionSpec.of
        run_script(visits, [
            add("ann", at("10:00"), View("/shoes")),
            add("ann", at("10:20"), View("/thanks")),
            run_batch(),
            advance_watermark_to(at("10:50")),
            run_batch(),
            expect_results(Visit(pages=2)),
        ])

    Args:
        spec: The definition, a `SessionSpec` or a `StatefulSpec`.
        steps: What happens and what is expected, in order.
        processing_time: The processing time of the first batch, with a time zone. A spec with a
            clock in processing time needs it.

    Returns:
        The driver as the script leaves it.

    Raises:
        ExpectationError: Something else came than was expected, or something is left at the end:
            a row or a rejection that no step expected, an event that no batch has read. The text
            shows the script, what was expected next to what came, and a timeline.
        ScriptError: A step is impossible; the text shows the script and a timeline.
        UserFunctionError: A function of the spec failed under `on_error="raise"`; the script and
            a timeline are added as a note.
    """
    __tracebackhide__ = True  # pytest then points at the script
    script = [*_checked(steps), Step(end_of_script, (), {})]
    stage = Stage.of(spec, processing_time)
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
            sides = "\n".join(_side_by_side(mismatch.expected, mismatch.got))
            text = f"step {place + 1} does not hold: {mismatch.what}\n\n{sides}"
            picture = _picture(stage, script, notes)
            raise ExpectationError(with_hint(f"{text}\n\n{picture}", mismatch.hint))
        notes.append(stage.note)
    return stage.driver


def _checked(steps: Iterable[Step]) -> list[Step]:
    script = list(steps)
    for number, step in enumerate(script, start=1):
        if not isinstance(step, Step):
            found = f"step {number} of the script must be a step, found {step!r}"
            raise ScriptError(with_hint(found, "write add(...), run_batch(), expect_results(...)"))
    return script


def _picture(stage: Stage, script: Sequence[Step], notes: Sequence[str]) -> str:
    """
    Draw the run so far: the script, with what each step did that was played, and a timeline.

    An arrow points at the step that fails; the end is shown as one only if it does.
    """
    steps = [*map(str, script[:-1]), *([END] if len(notes) == len(script) - 1 else [])]
    width = len(str(len(steps)))
    lines = []
    for number, (step, note) in enumerate(zip_longest(steps, notes, fillvalue=""), start=1):
        arrow = ARROW if number == len(notes) + 1 else ""
        comment = f"  # {note}" if note else ""
        lines.append(f"{arrow:{len(ARROW)}} {number:{width}}  {_on_one_line(step)}{comment}")
    timeline = stage.run.timeline.as_text()
    return "\n".join([*lines, *(["", *timeline] if timeline else [])])


def _side_by_side(expected: Sequence[str], got: Sequence[str]) -> list[str]:
    """Return two columns, with a `!` at the lines that differ."""
    left, right = expected or [NOTHING], got or [NOTHING]
    width = max(map(len, ("expected", *left)))
    lines = [f"{MARGIN}{'expected':{width}}   got"]
    for one, other in zip_longest(left, right, fillvalue=""):
        sign = " " if one == other else "!"
        lines.append(f"  {sign} {one:{width}}   {other}".rstrip())
    return lines


def _on_one_line(text: str) -> str:
    line = " ".join(text.split("\n"))
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 4]}...)"
