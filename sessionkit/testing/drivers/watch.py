"""Warnings and errors that Spark doesn't give: lost states, clocks that can't go back."""

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from copy import copy, deepcopy
from datetime import datetime, timedelta
from pathlib import Path
from types import NoneType
from typing import Any, Final

import attrs

import sessionkit
from sessionkit._engine.counts import Counts
from sessionkit._engine.keys.step import KeyLogic
from sessionkit._engine.rows.objects import yielded
from sessionkit._engine.shell.worker import Worker
from sessionkit._engine.wire.inbound import hint_for, why_none
from sessionkit._instants import duration_text
from sessionkit.errors import StateValueError, UserFunctionError, with_hint
from sessionkit.spec.base import AnySpec, set_derived
from sessionkit.spec.bytecode import calls, changes, ends_in_none
from sessionkit.spec.functions import name_of
from sessionkit.spec.logic import CHANGE, Functions
from sessionkit.spec.signatures import signature_of
from sessionkit.spec.views import MISSING, KeyState, KeyTimes
from sessionkit.state._codec import codec_of
from sessionkit.testing.drivers.query import Clocks, Snapshot
from sessionkit.testing.drivers.results import Rejection
from sessionkit.testing.literals import clock_text

PACKAGE: Final = str(Path(sessionkit.__file__).parent)


def warn(found: str, hint: str) -> None:
    """Warn at the line of the test: the innermost frame outside sessionkit."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(with_hint(found, hint), stacklevel=level)


def check_watermark(instant: datetime, stays: datetime | None) -> None:
    """Warn if the watermark was to go back."""
    if stays is not None and instant < stays:
        found = f"the watermark can't go from {clock_text(stays)} back to {clock_text(instant)}"
        hint = "it never goes back on Spark; a new driver has none yet"
        warn(found, hint)


def check_due(left: Snapshot) -> None:
    """Warn if something is due by the watermark, and waits for a micro-batch."""
    timers = (stored.timeout_timestamp_ms for stored in left.groups.values())
    if any(timer is not None and timer < left.clocks.watermark_ms for timer in timers):
        found = "no rows: no micro-batch has run since `advance_watermark_to`"
        warn(found, "call run_batch() after it: what is due comes in a micro-batch")


def check_late(before: Snapshot, counts: Counts) -> None:
    """Warn if events were late in the first micro-batch, where Spark has no watermark yet."""
    if counts.late and not before.batch_id and before.seed is None:
        found = f"late in the first micro-batch: {counts.late} of {counts.events} events"
        hint = "no event is late there on Spark; call run_batch() before advance_watermark_to(...)"
        warn(f"{found}, as `advance_watermark_to` was called before it", hint)


# -- functions of sessions -----------------------------------------------------------------------


@attrs.define(eq=False)
class Unreturned:
    """A function without `return` that counts its calls until one changes the state."""

    role: str
    function: Callable[..., Any]
    calls: int = 0
    is_settled: bool = False

    def __call__(self, state: Any, *arguments: Any) -> Any:
        if self.is_settled:
            return self.function(state, *arguments)
        before = _stored(state)
        other = arguments[0] if self.role == "merge" else None
        others = [] if other is None else [(other, state), *_onto_new(other)]
        others = deepcopy(others)
        returned = self.function(state, *arguments)
        self.is_settled = returned is not None or _stored(state) != before
        if other is None:
            self.calls += 1
        elif not self.is_settled and _stored(other) != before:
            # A merge may leave the left state as it is. Then it adds something the other way
            # round, or to a new state.
            self.is_settled = any(self._changes(*pair) for pair in others)
            self.calls += 1
        return returned

    def _changes(self, state: Any, argument: Any) -> bool:
        before = _stored(state)
        try:
            return self.function(state, argument) is not None or _stored(state) != before
        except Exception:  # noqa: BLE001 (the user's own function)
            return True

    def finding(self) -> tuple[str, str] | None:
        """Return the problem and its hint, once; None where nothing is wrong."""
        if self.is_settled or not self.calls:
            return None
        self.is_settled = True
        calls = "its call" if self.calls == 1 else f"all of its {self.calls} calls"
        found = f"`{self.role}` ({name_of(self.function)}) returns nothing, and has left its state"
        hint = "end it with `return ...`; or, if it's meant to do that, annotate it `-> None`"
        if self.role == "merge":
            hint = (
                "assign what it computes, or return it; if the left state is to stay, return that"
            )
        return f"{found} as it was in {calls}", hint


def _onto_new(other: Any) -> list[tuple[Any, Any]]:
    """Return a new state and another one, where the class needs no arguments."""
    try:
        return [(type(other)(), other)]
    except Exception:  # noqa: BLE001 (the user's own class)
        return []


def counting(spec: AnySpec) -> tuple[AnySpec, list[Unreturned]]:
    """
    Return a spec that counts the calls of functions that may lack a `return` of the state.

    They return nothing, and can change the state only by calls. An `update` without effect may be
    meant, where its annotation says that it returns None; a `merge` that is, would lose a session.
    """
    counted, logic = list[Unreturned](), getattr(spec, "logic", None)
    if not isinstance(logic, Functions):
        return spec, counted
    for role in CHANGE:
        function = getattr(logic, role)
        signature = signature_of(function, role)
        plain, annotation = signature.plain, signature.returned.annotation
        is_counted = annotation is None or (role == "merge" and annotation is NoneType)
        if plain and is_counted and ends_in_none(plain) and calls(plain) and not changes(plain):
            counted.append(Unreturned(role, function))
    if not counted:
        return spec, counted
    watched, logic = copy(spec), copy(logic)
    set_derived(logic, **{part.role: _named_like(part, part.function) for part in counted})
    set_derived(watched, logic=logic)
    return watched, counted


def check_effect(counted: list[Unreturned]) -> None:
    """Warn if a function neither changes nor returns a state."""
    for function in counted:
        if (finding := function.finding()) is not None:
            warn(*finding)


def check_quarantined(counts: Counts, rejections: Sequence[Rejection]) -> None:
    """Warn if all events were quarantined, and the test didn't take the rejections."""
    if counts.quarantined and counts.quarantined == counts.events and rejections:
        why = Counter(rejection.reason for rejection in rejections)
        warn(
            why_none("no rows", why), hint_for(why, "look at take_rejections(), which returns them")
        )


def check_leap(spec: AnySpec, last: datetime | None, now: datetime | None, *, waits: bool) -> None:
    """Warn if the processing time leapt by more than `close_idle_after`."""
    span = spec.close_idle_after
    if waits and span is not None and last is not None and now is not None and now - last > span:
        leap = f"the processing time leapt by {duration_text(now - last)}"
        found = f"{leap}, which `close_idle_after` ({duration_text(span)}) takes for a pause"
        hint = "advance it in steps of at most that, as a trigger does, with run_batch() after each"
        warn(found, hint)


def check_behind(spec: AnySpec, clocks: Clocks) -> None:
    """Warn if `close_idle_after` would bring a watermark that events have passed."""
    now, watermark = clocks.processing, clocks.watermark
    if spec.close_idle_after is None or now is None or watermark is None:
        return
    brought = now - (spec.watermark_delay or timedelta(0))
    if brought < watermark:
        found = "`close_idle_after` can't close a session: the processing time less the delay is "
        found += f"{clock_text(brought)}, and the watermark is at {clock_text(watermark)} already"
        warn(found, "start the driver when the events happen: processing_time=at(...)")


# -- functions of keys ---------------------------------------------------------------------------


@attrs.define(eq=False)
class WatchedState(KeyState[Any]):
    """The state of a key that notes each object it returns, as it would be stored."""

    _returned: list[tuple[Any, str | None]] = attrs.field(factory=list)

    def get(self, default: Any = MISSING) -> Any:
        value = super().get(default)
        if value.__class__ is self._kind.cls:
            self._returned.append((value, _stored(value)))
        return value

    @property
    def is_lost(self) -> bool:
        """Whether a returned object was changed, and the state was neither set nor removed."""
        snapshot = self._snapshot
        if snapshot.is_set or snapshot.was_removed or snapshot.is_last:
            return False
        return any(_stored(value) != before for value, before in self._returned)


def _stored(value: Any) -> str | None:
    """Return the stored form of a state as text, so that NaN equals NaN; None without one."""
    try:
        return repr([column.to_pylist() for column in codec_of(type(value)).encode([value])])
    except StateValueError:
        return None


def watched(worker: Worker) -> list[str]:
    """Watch the functions of keys for lost states; return the list that notes them."""
    lost: list[str] = []
    logic = worker.logic
    if isinstance(logic, KeyLogic) and not logic.spec.takes_buckets:
        on_timer = logic.program.on_timer
        program = attrs.evolve(
            logic.program,
            function=_watched("process", logic.program.function, lost),
            on_timer=on_timer and _watched("on_timer", on_timer, lost),
        )
        set_derived(logic, program=program, view=WatchedState)
    return lost


def _watched(role: str, function: Callable[..., Any], lost: list[str]) -> Callable[..., Any]:
    def watched(key: Any, argument: Any, state: KeyState[Any], times: KeyTimes) -> Any:
        returned = function(key, argument, state, times)
        # The body of a generator is part of the call.
        if isinstance(returned, Generator):
            returned = yielded(returned, role)
        elif isinstance(returned, Iterator):
            returned = list(returned)
        if isinstance(state, WatchedState) and state.is_lost:
            lost.append(f"`{role}` ({name_of(function)}), for {key!r}")
        return returned

    return _named_like(watched, function)


def _named_like(watched: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a wrapper the name of its function, for errors."""

    def call(*arguments: Any) -> Any:
        return watched(*arguments)

    call.__module__ = function.__module__
    call.__qualname__ = getattr(function, "__qualname__", None) or repr(function)
    return call


def check_lost(lost: list[str]) -> None:
    """Raise a `UserFunctionError` if a function changed its state without `set`."""
    if lost:
        found = f"{lost[0]}, changed the state that `get` gave it without `set`: Spark loses it"
        lost.clear()
        hint = "call state.set(...) before it returns, or change a copy: copy.deepcopy(...)"
        raise UserFunctionError(found, hint=hint)
