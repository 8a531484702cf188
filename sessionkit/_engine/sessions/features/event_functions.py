"""
What the user's functions return for an event: its gap, and which rules it fires.

    events     rule.NAME     whether a predicate of the rules holds for an event

An event is quarantined if its own class refuses it, or its gap isn't positive or is longer than
declared. An event for which a function raises has failed.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers, mask_of
from sessionkit._engine.boundaries import window_end
from sessionkit._engine.rows.objects import build_events, conditions_met
from sessionkit._engine.rows.tables import SideOutput
from sessionkit._engine.sessions.feature import Feature
from sessionkit._engine.sessions.plan import WindowedEvents
from sessionkit._instants import span_us
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.spec.functions import Failure, name_of, traceback_of
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts._rule import Predicate

A = TypeVar("A", bool, timedelta)

HINTS: Final[dict[type[Any], tuple[str, str]]] = {
    timedelta: (
        "return timedelta(0) for an event that is to be quarantined",
        "return timedelta(minutes=...)",
    ),
    bool: ("fix the function, or return False for such an event", "return True or False"),
}
"""The hints where a function raises, and where it returns something else."""


@attrs.frozen(eq=False)
class EventFunctions(Feature):
    """The functions of events, and whether they need objects of the event's class."""

    spec: AnySessionSpec
    predicates: Mapping[str, Predicate]
    needs_objects: bool

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "EventFunctions | None":
        rules = spec.rules
        predicates = {} if rules is None else rules.predicates
        # `state_gap` is called later, for states folded from the same objects.
        functions = [spec.timeout.gap, rules and rules.state_gap, *predicates.values()]
        needs_objects = any(map(callable, functions))
        return cls(spec, predicates, needs_objects) if predicates or needs_objects else None

    def read(self, events: WindowedEvents) -> tuple[WindowedEvents, list[SideOutput]]:
        """Return events with their own gaps and the rules that they fire, and the rejected ones."""
        spec, table, starts, ends = self.spec, events.table, events.starts, events.ends
        objects, refused = build_events(spec, table) if self.needs_objects else ([], {})
        answers = _Answers(spec, objects, refused)
        if callable(spec.timeout.gap):
            ends = window_end(starts, _gaps(spec, spec.timeout.gap, answers))
        for name, met in _predicates(self, table, answers).items():
            if name == "extends":
                # Other events have windows of no length, as long as the event itself.
                ends = np.where(met, ends, starts + (0 if spec.timeout.gap_inclusive else 1))
            else:
                table = table.append_column(f"rule.{name}", pa.array(met))
        rejected = [
            *SideOutput.with_reasons("quarantined", answers.refused, table),
            *SideOutput.with_failures("failed", answers.failed, table),
        ]
        windowed = WindowedEvents(table, starts, ends)
        return windowed.without([*answers.refused, *answers.failed]), rejected


def _gaps(spec: AnySessionSpec, gap_of: Callable[[Any], timedelta], answers: "_Answers") -> Numbers:
    """Return the gap of each event, and reject events whose gap isn't valid."""
    longest = span_us(spec.timeout.longest)
    # An event without a valid gap is rejected: its window doesn't count, but needs an end.
    gaps = np.ones(len(answers.objects), np.int64)
    for row, gap in answers.of_function("gap", gap_of, timedelta):
        gap_us = span_us(gap)
        if 0 < gap_us <= longest:
            gaps[row] = gap_us
        elif gap_us <= 0:
            answers.refused[row] = "the gap is not positive"
        else:
            answers.refused[row] = f"the gap is longer than max_gap={spec.timeout.longest}"
    return gaps


def _predicates(functions: EventFunctions, table: pa.Table, answers: "_Answers") -> dict[str, Mask]:
    """Return for each predicate of the rules the events for which it holds."""
    holds_for: dict[str, Mask] = {}
    for name, predicate in functions.predicates.items():
        if callable(predicate):
            holds_for[name] = np.zeros(table.num_rows, np.bool_)
            for row, holds in answers.of_function(name, predicate, bool):
                holds_for[name][row] = holds
        else:
            (met,) = conditions_met(functions.spec, table, [predicate])
            holds_for[name] = mask_of(met)
    return holds_for


@attrs.frozen
class _Answers:
    """The answers of event functions; `refused` and `failed` are by the rows of events."""

    spec: AnySessionSpec
    objects: list[Any]
    """The events; None for an event that its class refuses."""
    refused: dict[int, str]
    failed: dict[int, Failure] = attrs.field(factory=dict)

    def of_function(
        self, role: str, function: Callable[[Any], A], kind: type[A]
    ) -> Iterator[tuple[int, A]]:
        """Yield the row of each event not rejected so far, and a function's answer for it."""
        for row, event in enumerate(self.objects):
            if row in self.refused or row in self.failed:
                continue
            try:
                answer = _called(role, function, event, kind)
            except UserFunctionError as error:
                if self.spec.on_error == "raise":
                    raise
                self.failed[row] = Failure.of(error)
                continue
            yield row, answer


def _called(role: str, function: Callable[[Any], A], event: Any, kind: type[A]) -> A:
    try:
        answer = function(event)
    except MemoryError:
        raise
    except Exception as error:
        what = f"`{role}` ({name_of(function)}) raised {type(error).__name__}: {error}"
        raise UserFunctionError(what, traceback_of(error), HINTS[kind][0]) from error
    if not isinstance(answer, kind):
        what = f"`{role}` ({name_of(function)}) must return a {kind.__name__}"
        found_kind = type(answer).__name__
        raise UserFunctionError(with_hint(f"{what}, found {found_kind}", HINTS[kind][1]))
    return answer
