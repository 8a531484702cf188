"""A line of a script, as a value."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import attrs

from sessionkit.testing.scripts.picture import Mismatch, call_text
from sessionkit.testing.scripts.stage import Stage

__all__ = ["Step", "step"]

P = ParamSpec("P")


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
        return call_text(self.play.__name__, self.args, self.options)


def step(play: Callable[Concatenate[Stage, P], Mismatch | None]) -> Callable[P, Step]:
    """Turn a function that plays a step into one that writes it into a script."""
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
