"""
The calls of `process` and `on_timer` for one key: each counts as a whole or not at all.

A call works on a copy of the key, and gives the state as an object of its own: what it does
to them counts only once it has returned. A function that raises leaves no trace, and one that
changes its object without `set` changes nothing that another call sees. The drivers of the tests
refuse such a change.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import attrs
import pyarrow as pa

from sessionkit._engine.keys.program import KeyProgram
from sessionkit._engine.logic import BatchClocks
from sessionkit._engine.rows.objects import check_fit, check_rows, collected
from sessionkit._engine.rows.tables import Rejected
from sessionkit._instants import BEGINNING_US, LAST_INSTANT_US, instant_of
from sessionkit.errors import StateValueError, UserFunctionError
from sessionkit.spec.functions import Failure, call_failed
from sessionkit.spec.stateful import AnyStatefulSpec
from sessionkit.spec.views import MISSING, BatchTimes, KeySnapshot, KeyState, KeyTimes
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import AttrsType


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
        snapshot: The key as the last call that returned has left it.
        since: From when its timeout policy counts.
        read_again: Reads the stored state of the key at a place.
        place: The place of this one.
        returned: The result rows of its calls, with the function that returned them.
        called: Whether a call has been given the object in it.
    """

    snapshot: KeySnapshot
    since: Stamps
    read_again: Callable[[int], Any]
    place: int
    returned: list[tuple[str, list[Any]]] = attrs.field(factory=list)
    called: bool = False

    @classmethod
    def of_new(cls, key: Any) -> "KeyRun":
        stamps = Stamps(BEGINNING_US, BEGINNING_US)
        return cls(KeySnapshot(key, MISSING, {}), stamps, lambda _: MISSING, 0)

    @property
    def is_kept(self) -> bool:
        return self.snapshot.value is not MISSING or bool(self.snapshot.timers)

    def open(self, *, is_last: bool, on_copy: bool) -> KeySnapshot:
        """Return the state for the next call: the stored object, or a copy of it."""
        snapshot = self.snapshot
        value = snapshot.value
        if self.called and value is not MISSING:
            value = deepcopy(value) if snapshot.was_set else self.read_again(self.place)
        self.called = True
        if on_copy:
            return KeySnapshot(
                snapshot.key, value, dict(snapshot.timers), snapshot.was_set, is_last=is_last
            )
        snapshot.value, snapshot.is_last = value, is_last
        snapshot.is_set = snapshot.was_removed = False
        snapshot.newly_set.clear()
        return snapshot

    def begin_anew(self) -> None:
        """Forget the key, which its policy has ended; its rows stay."""
        fresh = KeyRun.of_new(self.snapshot.key)
        self.snapshot, self.since, self.read_again = fresh.snapshot, fresh.since, fresh.read_again


@attrs.define(eq=False)
class Calls:
    """
    The calls of a micro-batch, at its clocks, which `now` has as the functions see them.

    `view` makes the state for a call. It counts the timers that fire and the ends by policies, and
    keeps the keys whose `on_timer` failed, and why.
    """

    program: KeyProgram
    clocks: BatchClocks
    view: Callable[[KeySnapshot, AttrsType], KeyState[Any]]
    now: BatchTimes = attrs.field(init=False)
    fired: int = attrs.field(default=0, init=False)
    failed_output: list[tuple[Any, Failure]] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        watermark = None
        if self.clocks.watermark_us != BEGINNING_US:
            watermark = instant_of(min(self.clocks.watermark_us, LAST_INSTANT_US))
        self.now = BatchTimes(watermark, instant_of(self.clocks.processing_us))

    def process(self, run: KeyRun, events: Any, times_us: Sequence[int]) -> Failure | None:
        """Pass events of a key, with their times in order, to `process`; return why it failed."""
        return self._attempt(run, "process", self.program.function, events, times_us)

    def on_timer(self, run: KeyRun, name: str, *, is_last: bool = False) -> None:
        """Call `on_timer` for a timer of a key, or for the policy that ends it: the last call."""
        self.fired += 1
        on_timer = self.program.on_timer
        if on_timer is None:
            return
        failure = self._attempt(run, "on_timer", on_timer, name, is_last=is_last)
        if failure is not None:
            named = failure._replace(reason=f"timer {name!r}: {failure.reason}")
            self.failed_output.append((run.snapshot.key, named))

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
        """
        Call a function; return why it failed, where failures are data.

        Raises:
            UserFunctionError: It failed, and the spec says `on_error="raise"`.
        """
        before, program, spec = run.snapshot.value, self.program, self.program.spec
        # A call that fails stops the query, unless failures are data: then it leaves no trace.
        snapshot = run.open(is_last=is_last, on_copy=program.rejects)
        key, state = snapshot.key, self.view(snapshot, program.state)
        shown_us = () if spec.event_time is None else times_us
        times = KeyTimes(snapshot, self.now, program.timer_rules, shown_us)
        try:
            try:
                rows = collected(function(key, given, state, times), spec, role)
            except Exception as error:
                raise UserFunctionError(*call_failed(role, function, repr(key), error)) from error
            check_rows(rows, spec, role, function, key)
            if program.rejects:
                # What does not fit must show before the call counts, not when all is stored.
                check_fit(rows, spec.result, role, function, key)
                if snapshot.was_set:
                    left = "left a state that"
                    check_fit([snapshot.value], spec.state, role, function, key, left)
        except UserFunctionError as error:
            if not program.rejects:
                raise
            return Failure.of(error)
        self._stamp(run.since, snapshot, times_us, is_new=before is MISSING)
        if not snapshot.is_set and snapshot.value is not MISSING:
            # What the call did to the object that it was given counts for nothing.
            snapshot.value = before
        run.snapshot = snapshot
        if rows:
            run.returned.append((role, rows))
        return None

    def _stamp(
        self, since: Stamps, snapshot: KeySnapshot, times_us: Sequence[int], *, is_new: bool
    ) -> None:
        """Record when the key had events, and when its state was created and set."""
        if times_us:
            since.last_event_time = max(since.last_event_time, times_us[-1])
            since.last_processing_time = self.clocks.processing_us
        if snapshot.value is MISSING:
            since.created = since.updated = None
        if snapshot.is_set:
            by_event_time = self.program.age_clock == "event_time"
            now_us = since.last_event_time if by_event_time else self.clocks.processing_us
            since.updated = now_us
            if snapshot.was_removed or is_new:
                since.created = now_us


def result_rows(program: KeyProgram, runs: Sequence[KeyRun]) -> pa.Table:
    returned = [(run, role, row) for run in runs for role, rows in run.returned for row in rows]
    if not returned:
        return program.no_rows
    spec, results = program.spec, [row for _, _, row in returned]
    codec = codec_of(spec.result)
    try:
        columns = codec.encode(results)
    except StateValueError:
        place, _ = codec.first_misfit(results)
        run, role, row = returned[place]
        function: Any = program.function if role == "process" else program.on_timer
        check_fit([row], spec.result, role, function, run.snapshot.key)
        raise
    keys = _key_arrays(spec, [run.snapshot.key for run, _, _ in returned])
    return pa.Table.from_arrays([*keys, *columns], schema=spec.result_schema)


def failed_outputs(spec: AnyStatefulSpec, failed: Sequence[tuple[Any, Failure]]) -> list[Rejected]:
    if not failed:
        return []
    failures = dict(enumerate(failure for _, failure in failed))
    arrays = _key_arrays(spec, [key for key, _ in failed])
    rows = pa.Table.from_arrays(arrays, schema=pa.schema(spec.key_schema))
    return Rejected.with_failures("failed_output", failures, rows)


def _key_arrays(spec: AnyStatefulSpec, keys: Sequence[Any]) -> list[pa.Array]:
    # The keys (a, 1) and (b, 2) have the columns a, b and 1, 2.
    columns = zip(*keys, strict=True)
    return [
        pa.array(values if field.type.plain else map(field.type.dump, values), field.type.arrow)
        for field, values in zip(spec.key_fields, columns, strict=True)
    ]
