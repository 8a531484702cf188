"""The text of a script that fails: what was expected beside what came, and the script itself."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

import attrs

from sessionkit.errors import with_hint
from sessionkit.testing.scripts.literals import literal

__all__ = ["Mismatch", "call_text", "failure_text", "script_text"]

ARROW: Final = "-->"
LONGEST_LINE: Final = 96
NOTHING: Final = "(nothing)"
MARGIN: Final = "    "


@attrs.frozen
class Mismatch:
    """
    An expectation that does not hold.

    Attributes:
        what: What is wrong, in words.
        expected: What the step says, line by line.
        got: What there was.
        hint: What to change if the run is right and the script is wrong.
    """

    what: str
    expected: Sequence[str]
    got: Sequence[str]
    hint: str


def failure_text(mismatch: Mismatch, number: int, picture: str) -> str:
    """Return the whole message: what, expected beside got, the picture, and the hint."""
    found = f"step {number} does not hold: {mismatch.what}"
    sides = "\n".join(_side_by_side(mismatch.expected, mismatch.got))
    return with_hint(f"{found}\n\n{sides}\n\n{picture}", mismatch.hint)


def script_text(steps: Sequence[str], notes: Sequence[str], timeline: Sequence[str]) -> str:
    """
    Return the script, a line for each step, with an arrow at the one that failed, and a timeline.

    Args:
        steps: The steps as they are written.
        notes: What each step did that was played; the next one is the one that failed.
        timeline: The lines of the timeline.
    """
    lines = []
    width = len(str(len(steps)))
    for place, step in enumerate(steps):
        arrow = ARROW if place == len(notes) else ""
        note = f"  # {notes[place]}" if place < len(notes) and notes[place] else ""
        lines.append(f"{arrow:{len(ARROW)}} {place + 1:{width}}  {_on_one_line(step)}{note}")
    return "\n".join([*lines, *(["", *timeline] if timeline else [])])


def call_text(name: str, args: Sequence[Any], options: Mapping[str, Any]) -> str:
    """Return a call as a test would write it."""
    named = [f"{option}={literal(value)}" for option, value in options.items()]
    return f"{name}({', '.join([*map(literal, args), *named])})"


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
