"""The events of one micro-batch with their windows: from their time to the end of their gap."""

from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.conditions import conditions_met
from sessionkit._engine.rows.objects import build_events
from sessionkit._engine.rows.table import Rejected, micros
from sessionkit._engine.sessions.closings import closings
from sessionkit._engine.sessions.gathered import with_each
from sessionkit._instants import span_us
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.spec.functions import Failure, name_of, traceback_of
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts import EventTimeGap, Predicate, SessionRules, window_end

__all__ = ["WindowedEvents", "read_events"]

Instants: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
A = TypeVar("A", bool, timedelta)

PREDICATES: Final = ("until", "starts_with", "extends")
HINTS: Final[dict[type[Any], tuple[str, str]]] = {
    timedelta: (
        "return timedelta(0) for an event that is to be quarantined",
        "return timedelta(minutes=...)",
    ),
    bool: ("fix the function, or return False for such an event", "return True or False"),
}
"""What to do where a function raises, and where it returns something else."""


@attrs.frozen
class WindowedEvents:
    """
    Events with their windows. They're rows here: what belongs together depends on times alone.

    Attributes:
        table: Their rows, as they came.
        starts: Their times, in microseconds.
        ends: The ends of their own windows, in microseconds.
    """

    table: pa.Table
    starts: Instants
    ends: Instants

    def closes(self, rules: SessionRules | None) -> Instants:
        """Return when sessions of one event each would be over, in microseconds."""
        return self.ends if rules is None else closings(rules, self.starts, self.ends)[0]

    def extend(self, timeout: EventTimeGap | SessionRules) -> Mask:
        """Mark those that keep a session open."""
        return self.ends > _as_long_as_it_lasts(self.starts, timeout)

    def only(self, chosen: Mask) -> "WindowedEvents":
        """Return the events that a mask chooses."""
        if chosen.all():
            return self
        table = self.table.filter(pa.array(chosen))
        return WindowedEvents(table, self.starts[chosen], self.ends[chosen])

    def at(self, places: npt.NDArray[np.int64]) -> "WindowedEvents":
        """Return the events at some places."""
        return WindowedEvents(
            self.table.take(pa.array(places)), self.starts[places], self.ends[places]
        )

    def joined(self, others: "WindowedEvents") -> "WindowedEvents":
        """Return these events and others."""
        if not len(others.starts):
            return self
        return WindowedEvents(
            pa.concat_tables([self.table, others.table]),
            np.concatenate([self.starts, others.starts]),
            np.concatenate([self.ends, others.ends]),
        )

    def without(self, places: Collection[int]) -> "WindowedEvents":
        """Return the events but for those at some places."""
        good = np.ones(len(self.starts), np.bool_)
        good[list(places)] = False
        return self.only(good)


def read_events(spec: AnySessionSpec, table: pa.Table) -> tuple[WindowedEvents, list[Rejected]]:
    """
    Return the events of a table with their windows, and which rules they fire.

    Only functions of an event, for the gap or a rule, need objects here. Then an event that its own
    class refuses, or whose gap is not positive or longer than declared, is quarantined, and one for
    which a function raises has failed.
    """
    starts = micros(table["time"])
    answers = _Answers.of(spec, table)
    gaps: int | Instants = span_us(spec.timeout.longest)
    if callable(spec.timeout.gap):
        gaps = _gaps(spec, answers)
    ends = window_end(starts, gaps)
    for name, held in _predicates(spec, table, answers).items():
        if name == "extends":
            ends = np.where(held, ends, _as_long_as_it_lasts(starts, spec.timeout))
        else:
            table = table.append_column(f"rule.{name}", pa.array(held))
    table = with_each(spec, table)
    rejected = [
        *Rejected.with_reasons("quarantined", answers.refused, table),
        *Rejected.with_failures("failed", answers.failed, table),
    ]
    events = WindowedEvents(table, starts, ends)
    return events.without([*answers.refused, *answers.failed]), rejected


def _as_long_as_it_lasts(starts: Instants, timeout: EventTimeGap | SessionRules) -> Instants:
    """Return the ends of the windows of events that keep no session open."""
    return starts + (0 if timeout.gap_inclusive else 1)


def _gaps(spec: AnySessionSpec, answers: "_Answers") -> Instants:
    """Return the gap of each event, and refuse those whose gap can't be."""
    longest = span_us(spec.timeout.longest)
    gaps = np.ones(len(answers.objects), np.int64)
    for place, gap in answers.of_function("gap", timedelta):
        found = span_us(gap)
        if 0 < found <= longest:
            gaps[place] = found
        elif found <= 0:
            answers.refused[place] = "the gap is not positive"
        else:
            answers.refused[place] = f"the gap is longer than at_most={spec.timeout.longest}"
    return gaps


def _predicates(spec: AnySessionSpec, table: pa.Table, answers: "_Answers") -> dict[str, Mask]:
    """Return for which events each predicate of the rules holds."""
    found: dict[str, Mask] = {}
    for name in PREDICATES if spec.rules is not None else ():
        predicate: Predicate | None = getattr(spec.rules, name)
        if callable(predicate):
            found[name] = np.zeros(table.num_rows, np.bool_)
            for place, holds in answers.of_function(name, bool):
                found[name][place] = holds
        elif predicate is not None:
            (held,) = conditions_met(spec, table, [predicate])
            found[name] = held.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
    return found


@attrs.frozen
class _Answers:
    """
    What functions of an event return.

    Attributes:
        spec: Whose functions.
        objects: The events; None for those that their class refuses.
        refused: Why events are quarantined, by their places.
        failed: Why events have failed.
    """

    spec: AnySessionSpec
    objects: list[Any]
    refused: dict[int, str]
    failed: dict[int, Failure]

    @classmethod
    def of(cls, spec: AnySessionSpec, table: pa.Table) -> "_Answers":
        """Build the events, where there is a function to ask."""
        # `state_gap` is asked later, by objects of the same events.
        named = ("state_gap", *PREDICATES)
        asked = [spec.timeout.gap, *(getattr(spec.rules, name, None) for name in named)]
        return cls(
            spec, *(build_events(spec, table) if any(map(callable, asked)) else ([], {})), {}
        )

    def of_function(self, role: str, kind: type[A]) -> Iterator[tuple[int, A]]:
        """Yield what a function returns for each event that is good so far, with its place."""
        function = getattr(self.spec.timeout, role)
        for place, event in enumerate(self.objects):
            if place in self.refused or place in self.failed:
                continue
            try:
                found = _called(role, function, event, kind)
            except UserFunctionError as error:
                if self.spec.on_error == "raise":
                    raise
                self.failed[place] = Failure.of(error)
                continue
            yield place, found


def _called(role: str, function: Callable[[Any], A], event: Any, kind: type[A]) -> A:
    try:
        found = function(event)
    except Exception as error:
        what = f"`{role}` ({name_of(function)}) raised {type(error).__name__}: {error}"
        raise UserFunctionError(what, traceback_of(error), HINTS[kind][0]) from error
    if not isinstance(found, kind):
        what = f"`{role}` ({name_of(function)}) must return a {kind.__name__}"
        found_kind = type(found).__name__
        raise UserFunctionError(with_hint(f"{what}, found {found_kind}", HINTS[kind][1]))
    return found
