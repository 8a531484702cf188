"""
The calls of `process` and `on_timer` for one key, each of which counts as a whole or not at all.

A call works on a copy of what is held, and gives the state as an object of its own: what it does
to them counts only once it has returned. A function that raises leaves no trace, and one that
changes its object without `set` changes nothing that another call sees.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from heapq import heapify, heappop, heappush
from typing import Any, Final

import attrs
import pandas as pd

from sessionkit._engine.clocks import BatchClocks
from sessionkit._engine.keys.table import age_clock
from sessionkit._engine.rows.results import check_fit, check_rows, collected
from sessionkit._instants import BEGINNING_US, LAST_INSTANT_US, instant_of, span_us
from sessionkit.errors import StateValueError, UserFunctionError, with_hint
from sessionkit.spec.functions import Failure, call_failed, name_of
from sessionkit.spec.stateful import AnyStatefulSpec
from sessionkit.spec.views import MISSING, Armed, BatchTimes, Held, KeyState, KeyTimes, TimerRules
from sessionkit.state import AttrsType, FieldType, FloatType, OptionalType, codec_of
from sessionkit.timeouts import Clock, deadlines_of, has_passed

__all__ = ["Calls", "KeyRun", "Stamps", "is_due", "shown"]

MOST_TIMERS: Final = 100_000
"""How many timers of a key may go off in one micro-batch: an hourly one catches up ten years."""


@attrs.define(eq=False)
class Stamps:
    """The instants of a key, in microseconds, that its policy counts from; see `STAMPS`."""

    last_event_time: int
    last_processing_time: int
    created: int | None = None
    updated: int | None = None


@attrs.define(eq=False)
class KeyRun:
    """
    One key during one micro-batch.

    Attributes:
        held: What is held of it, as of the last call that returned.
        since: From when its timeout policy counts.
        read_again: Reads the stored state of the key at a place.
        place: The place of this one.
        returned: The result rows of its calls, with the function that returned them.
        called: Whether a call has had the object of `held` in its hands.
    """

    held: Held
    since: Stamps
    read_again: Callable[[int], Any]
    place: int
    returned: list[tuple[str, list[Any]]] = attrs.field(factory=list)
    called: bool = False

    @classmethod
    def of_new(cls, key: Any) -> "KeyRun":
        """Return a key of which nothing is stored."""
        return cls(Held(key, MISSING, {}), Stamps(BEGINNING_US, BEGINNING_US), _nothing, 0)

    @property
    def is_kept(self) -> bool:
        """Whether anything is held of the key."""
        return self.held.value is not MISSING or bool(self.held.armed)

    def open(self, *, is_last: bool, on_copy: bool) -> Held:
        """Return what the next call works on: what is held, or a copy of it."""
        held = self.held
        value = held.value
        if self.called and value is not MISSING:
            value = deepcopy(value) if held.was_set else self.read_again(self.place)
        self.called = True
        if on_copy:
            return Held(held.key, value, dict(held.armed), held.was_set, is_last=is_last)
        held.value, held.is_last = value, is_last
        held.is_set = held.was_removed = False
        held.newly.clear()
        return held

    def begin_anew(self) -> None:
        """Forget the key, which its policy has ended; its rows stay."""
        fresh = KeyRun.of_new(self.held.key)
        self.held, self.since, self.read_again = fresh.held, fresh.since, fresh.read_again


def _nothing(_: int) -> Any:
    return MISSING


@attrs.define(eq=False)
class Calls:
    """
    The calls of a micro-batch.

    Attributes:
        spec: Whose functions are called.
        clocks: The clocks of the micro-batch.
        now: The same as the functions see them.
        spans: How the timeout policy counts: the name of each part, its clock, the stamp that it
            counts from, and how long, in microseconds.
        fired: How many timers went off, and policies ended a key.
        failed_output: The keys whose `on_timer` failed, and why.
    """

    spec: AnyStatefulSpec
    clocks: BatchClocks
    now: BatchTimes = attrs.field(init=False)
    spans: list[tuple[str, Clock, str, int]] = attrs.field(init=False)
    fired: int = attrs.field(default=0, init=False)
    failed_output: list[tuple[Any, Failure]] = attrs.field(factory=list, init=False)
    _kind: AttrsType = attrs.field(init=False)
    _rules: TimerRules = attrs.field(init=False)
    _function: Callable[..., Any] = attrs.field(init=False)
    _takes_frame: bool = attrs.field(init=False)
    _ages_by_event_time: bool = attrs.field(init=False)
    _rejects: bool = attrs.field(init=False)
    _has_times: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Look up once what every call needs."""
        self.now = shown(self.clocks)
        self.spans = [
            (deadline.name, deadline.clock, deadline.since, span_us(deadline.span))
            for deadline in deadlines_of(self.spec.timeout)
        ]
        self._kind = codec_of(self.spec.state).type
        self._rules = self.spec.timer_rules
        self._function = self.spec.function
        self._takes_frame = self.spec.handler == "frame"
        self._ages_by_event_time = age_clock(self.spec) == "event_time"
        self._rejects = self.spec.on_error == "reject"
        self._has_times = self.spec.event_time is not None

    def process(self, run: KeyRun, events: Any, times_us: Sequence[int]) -> Failure | None:
        """
        Hand the events of a key to `process`.

        Args:
            run: The key.
            events: Its events, in the form that `process` takes.
            times_us: Their event times, in order.

        Returns:
            Why, where the function failed and the spec says `on_error="reject"`.

        Raises:
            UserFunctionError: The function failed, and the spec says `on_error="raise"`.
        """
        return self._attempt(run, "process", self._function, events, times_us)

    def fire(self, run: KeyRun, until: Callable[[], BatchClocks | None]) -> None:
        """
        Call `on_timer` for the timers that are due, in the order of their instants.

        One that it sets to an instant already past is due too: were it to wait for the next
        micro-batch in which its bucket is looked at, the bucket would show.

        Args:
            run: The key.
            until: Returns the clocks until which the key lives, or None if no timer goes off any
                more. A timer may change that, so it's asked before each.

        Raises:
            UserFunctionError: Too many go off: `on_timer` sets them anew in the past.
        """
        lived: BatchClocks | None = None
        pending: list[tuple[int, Clock, str]] = []
        fired = 0
        while run.held.armed and (now := until()) is not None:
            if now != lived:
                lived, due = now, is_due(now)
                pending = [_place(name, one) for name, one in run.held.armed.items() if due(one)]
                heapify(pending)
            if not pending:
                return
            at_us, clock, name = heappop(pending)
            if run.held.armed.get(name) != Armed(clock, at_us):
                continue  # deleted, or set anew, by a call before
            if fired == MOST_TIMERS:
                self._give_up(run, due)
                return
            fired += 1
            del run.held.armed[name]
            self._on_timer(run, name, is_last=False)
            for anew in run.held.newly:
                one = run.held.armed.get(anew)
                if one is not None and due(one):
                    heappush(pending, _place(anew, one))
            run.held.newly.clear()

    def _give_up(self, run: KeyRun, due: Callable[[Armed], bool]) -> None:
        found = f"{MOST_TIMERS:,} timers of {run.held.key!r} have gone off in one micro-batch"
        found = f"{found}, and more are due"
        hint = (
            "set the next one after `times.watermark` or `times.processing_time`, and none once "
            "the watermark is in the year 9999, where a batch ends"
        )
        text = with_hint(found, hint)
        if self.spec.on_error == "raise":
            raise UserFunctionError(text)
        run.held.armed = {name: one for name, one in run.held.armed.items() if not due(one)}
        self.failed_output.append((run.held.key, Failure(text)))

    def end(self, run: KeyRun, name: str) -> None:
        """Call `on_timer` for a key that a policy ends."""
        self._on_timer(run, name, is_last=True)

    def _on_timer(self, run: KeyRun, name: str, *, is_last: bool) -> None:
        self.fired += 1
        if self.spec.timer_function is None:
            return
        failure = self._attempt(run, "on_timer", self.spec.timer_function, name, is_last=is_last)
        if failure is not None:
            named = failure._replace(reason=f"timer {name!r}: {failure.reason}")
            self.failed_output.append((run.held.key, named))

    def _attempt(
        self,
        run: KeyRun,
        role: str,
        function: Callable[..., Any],
        given: Any,
        times_us: Sequence[int] = (),
        *,
        is_last: bool = False,
    ) -> Failure | None:
        before = run.held.value
        # A call that fails stops the query, unless failures are data: then it leaves no trace.
        held = run.open(is_last=is_last, on_copy=self._rejects)
        state: KeyState[Any] = KeyState(held, self._kind)
        times = KeyTimes(held, self.now, self._rules, times_us if self._has_times else ())
        try:
            rows = self._rows(role, function, held.key, given, state, times)
            if self._rejects:
                self._check_state(held, role, function)
        except UserFunctionError as error:
            if not self._rejects:
                raise
            return Failure.of(error)
        self._stamp(run.since, held, times_us, is_new=before is MISSING)
        if not held.is_set and held.value is not MISSING:
            # What the call did to the object that it was given counts for nothing.
            held.value = before
        run.held = held
        if rows:
            run.returned.append((role, rows))
        return None

    def _stamp(self, since: Stamps, held: Held, times_us: Sequence[int], *, is_new: bool) -> None:
        """Note when the key had events, and when its state was made and set."""
        if times_us:
            since.last_event_time = max(since.last_event_time, times_us[-1])
            since.last_processing_time = self.clocks.processing_us
        if held.value is MISSING:
            since.created = since.updated = None
        if held.is_set:
            by_event_time = self._ages_by_event_time
            now_us = since.last_event_time if by_event_time else self.clocks.processing_us
            since.updated = now_us
            if held.was_removed or is_new:
                since.created = now_us

    def _check_state(self, held: Held, role: str, function: Callable[..., Any]) -> None:
        """Check that a state can be stored before the call counts; otherwise all keys see to it."""
        if not held.was_set:
            return
        try:
            codec_of(self.spec.state).encode([held.value])
        except StateValueError as error:
            what = f"`{role}` ({name_of(function)}), for {held.key!r}, left a state"
            message = f"{what} that does not fit: {error}"
            raise UserFunctionError(message) from error

    def _rows(  # noqa: PLR0917 (what a function is given, in its order)
        self,
        role: str,
        function: Callable[..., Any],
        key: Any,
        given: Any,
        state: KeyState[Any],
        times: KeyTimes,
    ) -> list[Any]:
        cls = self.spec.result
        try:
            found = function(key, given, state, times)
            if found.__class__ is cls and not self._rejects:
                return [found]
            if self._takes_frame and role == "process":
                found = _rows_of_frames(found, cls)
            rows = collected(found, cls)
        except Exception as error:
            raise UserFunctionError(*call_failed(role, function, repr(key), error)) from error
        check_rows(rows, cls, role, function, key)
        if self._rejects:
            check_fit(rows, cls, role, function, key)
        return rows


def _place(name: str, timer: Armed) -> tuple[int, Clock, str]:
    """Return what puts the timers of a key in order."""
    return timer.at_us, timer.clock, name


def is_due(clocks: BatchClocks) -> Callable[[Armed], bool]:
    """Return the test whether the clock of a timer has passed it."""
    now: dict[Clock, int] = {
        "event_time": clocks.watermark_us,
        "processing_time": clocks.processing_us,
    }
    return lambda timer: has_passed(timer.at_us, now[timer.clock])


def shown(clocks: BatchClocks) -> BatchTimes:
    """Return the clocks of a micro-batch as the functions of the user see them."""
    watermark = None
    if clocks.watermark_us != BEGINNING_US:
        watermark = instant_of(min(clocks.watermark_us, LAST_INSTANT_US))
    return BatchTimes(watermark, instant_of(clocks.processing_us))


def _rows_of_frames(found: Any, cls: type[Any]) -> Any:
    """Return result rows in place of the frames in what a function under `by_frame` returned."""
    if isinstance(found, pd.DataFrame):
        return _rows_of_frame(found, cls)
    if found.__class__ is cls or not isinstance(found, Iterable):
        return found
    return _unpacked(found, cls)


def _unpacked(found: Iterable[Any], cls: type[Any]) -> Iterator[Any]:
    for part in found:
        if isinstance(part, pd.DataFrame):
            yield from _rows_of_frame(part, cls)
        else:
            yield part


def _rows_of_frame(frame: pd.DataFrame, cls: type[Any]) -> list[Any]:
    kind = codec_of(cls).type
    names = [field.name for field in kind.fields]
    if sorted(map(str, frame.columns)) != sorted(names):
        found = f"`process` returned the columns {list(frame.columns)}"
        raise UserFunctionError(with_hint(f"{found}; {cls.__name__} has {names}", "name them so"))
    columns = [_values(frame[field.name], field.type) for field in kind.fields]
    return list(map(kind.build, *columns)) if names else [kind.build() for _ in range(len(frame))]


def _values(column: "pd.Series[Any]", kind: FieldType) -> list[Any]:
    """Return the values of a column; a float may be NaN and mean it, any other is missing then."""
    values: list[Any] = [None if value is pd.NA else value for value in column.tolist()]
    if kind in (FloatType(), OptionalType(FloatType())):
        return values
    missing = column.isna().tolist()
    return [None if gone else value for value, gone in zip(values, missing, strict=True)]
