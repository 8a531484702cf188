"""Where the CPU time of a call goes: the functions of the engine, timed without those inside."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any, Final

__all__ = ["PHASES", "Stopwatch", "bars"]

PHASES: Final[dict[str, tuple[str, ...]]] = {
    "read the stored row": ("shell.storage:memory_in_row",),
    "plan from times": (
        "sessions.verdicts:Verdicts.of",
        "sessions.verdicts:Verdicts.plan",
        "keys.step:ActiveKeys.of",
        "keys.program:KeyProgram.is_over",
        "keys.program:KeyProgram.is_due",
    ),
    "make objects": (
        "rows.objects:build_events",
        "rows.objects:decode_states",
        "rows.objects:decode_keys",
        "keys.step:_runs_of_rows",
    ),
    "call your functions": (
        "sessions.by_functions:fold_all",
        "sessions.by_functions:_finished",
        "keys.step:KeyLogic._called",
    ),
    "session ids": ("rows.ids:session_ids",),
    "result rows": (
        "sessions.by_functions:finish_by_functions",
        "sessions.step:_finished",
        "keys.calls:result_rows",
    ),
    "states to columns": (
        "sessions.plan:Plan.encoded",
        "sessions.program:Program.stored",
        "keys.step:ActiveKeys.table",
    ),
    "write the row": ("shell.storage:GroupRow.write",),
    "all else": ("sessions.step:SessionLogic.step", "keys.step:KeyLogic.step"),
}
"""The functions of each phase; what they call counts as another phase where that is listed too."""


class Stopwatch:
    """Adds up the CPU seconds of each phase."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._inside = [0.0]

    def take(self) -> dict[str, float]:
        """Return the seconds so far, and begin at zero."""
        taken, self.seconds = self.seconds, dict.fromkeys(PHASES, 0.0)
        return taken

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that adds its time, less the time of timed functions that it calls."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            self._inside.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                took = time.process_time() - start
                self.seconds[phase] += took - self._inside.pop()
                self._inside[-1] += took

        return call

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time the functions of the engine inside of this."""
        undo: list[tuple[Any, str, Any]] = []
        for phase, paths in PHASES.items():
            for path in paths:
                undo += self._replaced(phase, path)
        try:
            yield
        finally:
            for owner, name, found in undo:
                setattr(owner, name, found)

    def _replaced(self, phase: str, path: str) -> list[tuple[Any, str, Any]]:
        module, _, dotted = path.partition(":")
        owner: Any = import_module(f"sessionkit._engine.{module}")
        *classes, name = dotted.split(".")
        if classes:
            owner = getattr(owner, classes[0])
            found = vars(owner)[name]
            is_of_class = isinstance(found, classmethod)
            timed = self.timed(phase, found.__func__ if is_of_class else found)
            setattr(owner, name, classmethod(timed) if is_of_class else timed)
            return [(owner, name, found)]
        found = getattr(owner, name)
        timed = self.timed(phase, found)
        users = [
            each
            for each in list(sys.modules.values())
            if each.__name__.startswith("sessionkit.") and vars(each).get(name) is found
        ]
        for user in users:
            setattr(user, name, timed)
        return [(user, name, found) for user in users]


def bars(seconds: dict[str, float], width: int = 40) -> str:
    """Return the phases of a call as bars, with their milliseconds."""
    most = max(seconds.values())
    return "\n".join(
        f"{phase:20} {1000 * each:6.2f} ms  {'█' * round(width * each / most)}".rstrip()
        for phase, each in seconds.items()
        if each
    )
