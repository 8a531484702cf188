"""Two runs at once, one step at a time, in an order that a seed decides; either may be killed."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import attrs

PATIENCE_S: Final = 300.0


class Killed(BaseException):
    """What ends a run that is killed: no `except Exception` catches it."""


@attrs.define(eq=False)
class Turns:
    """
    Lets one run do one step at a time, in an order that a seed decides.

    Attributes:
        look: Called after each step, as a reader who comes just then.
        kills: How likely a run is killed at a step.
    """

    seed: int
    kills: float = 0.05
    look: Callable[[], None] = lambda: None
    trace: list[str] = attrs.field(factory=list, init=False)
    _may_go: dict[str, threading.Event] = attrs.field(factory=dict, init=False)
    _arrived: threading.Condition = attrs.field(factory=threading.Condition, init=False)
    _waiting: dict[str, str] = attrs.field(factory=dict, init=False)
    _dead: set[str] = attrs.field(factory=set, init=False)

    def step(self, run: str, name: str) -> None:
        """Wait for the turn of a run before a step; raise `Killed` if it's killed there."""
        with self._arrived:
            self._waiting[run] = name
            self._arrived.notify_all()
        assert self._may_go[run].wait(PATIENCE_S), f"{run} waits for its turn: {self.trace}"
        self._may_go[run].clear()
        if run in self._dead:
            raise Killed

    def run(self, runs: dict[str, Callable[[], Any]]) -> dict[str, Any]:
        """Run all to their ends; return for each what it returned, or what it raised."""
        chance, ends = random.Random(self.seed), dict[str, Any]()
        self._may_go = {run: threading.Event() for run in runs}

        def until_end(run: str) -> None:
            try:
                end = runs[run]()
            except BaseException as error:  # noqa: BLE001 (the test judges it)
                end = error
            with self._arrived:
                ends[run] = end
                self._arrived.notify_all()

        threads = [threading.Thread(target=until_end, args=[run], daemon=True) for run in runs]
        for thread in threads:
            thread.start()
        # A run goes on for a while, as one that is quick while the other is held.
        favourite = chance.choice([*runs])
        while True:
            with self._arrived:
                settled = self._arrived.wait_for(
                    lambda: len(self._waiting) + len(ends) == len(runs), PATIENCE_S
                )
                assert settled, f"no run moves: {self.trace}"
                if len(ends) == len(runs):
                    return ends
                self.look()
                if favourite not in self._waiting or chance.random() < 0.25:
                    favourite = chance.choice(sorted(self._waiting))
                name = self._waiting.pop(favourite)
                if chance.random() < self.kills:
                    self._dead.add(favourite)
                    name += ", killed"
                self.trace.append(f"{favourite}: {name}")
                self._may_go[favourite].set()


@contextmanager
def explained_by(turns: Turns) -> Iterator[None]:
    """Add the order of steps to an error."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"seed {turns.seed}: {'; '.join(turns.trace)}")
        raise
