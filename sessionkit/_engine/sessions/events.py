"""The events of one micro-batch with their windows: from their time to the end of their gap."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.objects import build_events
from sessionkit._engine.rows.table import Rejected, micros
from sessionkit._functions import name_of
from sessionkit._instants import span_us
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.session import AnySessionSpec
from sessionkit.timeouts import window_end

__all__ = ["WindowedEvents", "read_events"]

Instants: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@attrs.frozen
class WindowedEvents:
    """
    WindowedEvents to be folded.

    Attributes:
        table: Their rows, as they came.
        objects: The same as objects of the user's class.
        starts: Their times, in microseconds.
        ends: The ends of their own windows, in microseconds.
    """

    table: pa.Table
    objects: list[Any]
    starts: Instants
    ends: Instants

    def only(self, chosen: Mask) -> "WindowedEvents":
        """Return the events that a mask chooses."""
        if chosen.all():
            return self
        objects = [self.objects[place] for place in np.flatnonzero(chosen).tolist()]
        table = self.table.filter(pa.array(chosen))
        return WindowedEvents(table, objects, self.starts[chosen], self.ends[chosen])

    def made_anew(self, spec: AnySessionSpec, places: npt.NDArray[np.int64]) -> "WindowedEvents":
        """Return some of the events as new objects: a function may have changed the old ones."""
        table = self.table.take(pa.array(places))
        objects, _ = build_events(spec, table)
        return WindowedEvents(table, objects, self.starts[places], self.ends[places])


def read_events(spec: AnySessionSpec, table: pa.Table) -> tuple[WindowedEvents, list[Rejected]]:
    """
    Build the events of a table, and their windows.

    An event that its own class refuses (a validator, a converter), or whose gap is not positive or
    longer than declared, is quarantined. One for which the gap's function raises has failed.
    """
    starts = micros(table["time"])
    objects, refused = build_events(spec, table)
    failed: dict[int, str] = {}
    if callable(spec.timeout.gap):
        gaps = _gaps(spec, spec.timeout.gap, objects, refused, failed)
        ends = window_end(starts, gaps)
    else:
        ends = window_end(starts, span_us(spec.timeout.longest))
    events = WindowedEvents(table, objects, starts, ends)
    rejected = [
        *Rejected.with_reasons("quarantined", refused, table),
        *Rejected.with_reasons("failed", failed, table),
    ]
    good = np.ones(len(starts), np.bool_)
    good[[*refused, *failed]] = False
    return events.only(good), rejected


def _gaps(
    spec: AnySessionSpec,
    gap: Callable[[Any], timedelta],
    objects: list[Any],
    refused: dict[int, str],
    failed: dict[int, str],
) -> Instants:
    longest = span_us(spec.timeout.longest)
    gaps = np.ones(len(objects), np.int64)
    for place, event in enumerate(objects):
        if place in refused:
            continue
        try:
            found = _gap(gap, event)
        except UserFunctionError as error:
            if spec.on_error == "raise":
                raise
            failed[place] = str(error)
            continue
        if 0 < found <= longest:
            gaps[place] = found
        elif found <= 0:
            refused[place] = "the gap is not positive"
        else:
            refused[place] = f"the gap is longer than at_most={spec.timeout.longest}"
    return gaps


def _gap(gap: Callable[[Any], timedelta], event: Any) -> int:
    try:
        found = gap(event)
    except Exception as error:
        what = f"`gap` ({name_of(gap)}) raised {type(error).__name__}: {error}"
        hint = "return timedelta(0) for an event that is to be quarantined"
        raise UserFunctionError(with_hint(what, hint)) from error
    if not isinstance(found, timedelta):
        what = f"`gap` ({name_of(gap)}) must return a timedelta, found {type(found).__name__}"
        raise UserFunctionError(with_hint(what, "return timedelta(minutes=...)"))
    return span_us(found)
