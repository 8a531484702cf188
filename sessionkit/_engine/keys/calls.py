"""
Call `process` and `on_timer` for a key: each call takes effect as a whole or not at all.

A call gets its own copy of the key and of the state object. Its changes take effect once it
returns. A function that raises changes nothing, and a function that modifies its object without
`set` changes nothing that another call sees. Test drivers refuse such a modification.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import attrs
import pyarrow as pa

from sessionkit._engine.keys.program import KeyProgram
from sessionkit._engine.micro_batch import BatchClocks
from sessionkit._engine.rows.objects import check_fit, check_rows, collected
from sessionkit._engine.rows.tables import SideOutput
from sessionkit._instants import BEGINNING_US, LAST_INSTANT_US, instant_of
from sessionkit.errors import StateValueError, UserFunctionError
from sessionkit.spec.functions import Failure, call_failed
from sessionkit.spec.stateful import AnyStatefulSpec
from sessionkit.spec.views import MISSING, BatchTimes, KeySnapshot, KeyState, KeyTimes
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import AttrsType


@attrs.define(eq=False)
class Stamps:
    """The instants of a key, in microseconds, from which its policy counts; see `STAMPS`."""

    last_event_time: int
    last_processing_time: int
    created: int | None = None
    updated: int | None = None


@attrs.define(eq=False)
class KeyRun:
    """
    A key during a micro-batch.

    Attributes:
        snapshot: The key as the last successful call left it.
        since: The instants from which its timeout policy counts.
        read_again: Decodes the stored state at a position again.
        place: The position of this key.
        returned: The result rows of its calls, with the role of the function that returned them.
        called: Whether a call has received the state object of `snapshot`.
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
        """Return the snapshot for the next call, with a state object that no call has seen."""
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
        """Drop the state and timers of a key that its policy has ended; keep its result rows."""
        fresh = KeyRun.of_new(self.snapshot.key)
        self.snapshot, self.since, self.read_again = fresh.snapshot, fresh.since, fresh.read_again


@attrs.define(eq=False)
class Calls:
    """
    The calls of a micro-batch.

    Attributes:
        view: Builds the `KeyState` for a call.
        now: The clocks as functions see them.
        fired: How many timers fired and how many keys a policy ended.
        failed_output: The keys whose `on_timer` failed, and why.
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
        """Pass events of a key, with their sorted times, to `process`; return why it failed."""
        return self._attempt(run, "process", self.program.function, events, times_us)

    def on_timer(self, run: KeyRun, name: str, *, is_last: bool = False) -> None:
        """Call `on_timer` for a timer of a key, or for the policy that ends it (`is_last`)."""
        self.fired += 1
        on_timer = self.program.on_timer
        if on_timer is None:
            return
        failure = self._attempt(run, "on_timer", on_timer, name, is_last=is_last)
        if failure is not None:
            reason = f"timer {name!r}: {failure.reason}"
            self.failed_output.append((run.snapshot.key, failure._replace(reason=reason)))

    def _attempt(
        self,
        run: KeyRun,
        role: str,
        function: Callable[..., Any],
        argument: Any,
        times_us: Sequence[int] = (),
        *,
        is_last: bool = False,
    ) -> Failure | None:
        """
        Call a function; return why it failed, if failures are data.

        Raises:
            UserFunctionError: It failed, and the spec says `on_error="raise"`.
        """
        before, program, spec = run.snapshot.value, self.program, self.program.spec
        # Without `rejects` a failure stops the query, so no copy is needed to undo it.
        snapshot = run.open(is_last=is_last, on_copy=program.rejects)
        key, state = snapshot.key, self.view(snapshot, program.state)
        shown_us = () if spec.event_time is None else times_us
        times = KeyTimes(snapshot, self.now, program.timer_rules, shown_us)
        try:
            try:
                rows = collected(function(key, argument, state, times), spec, role)
            except MemoryError:
                raise
            except Exception as error:
                raise UserFunctionError(*call_failed(role, function, repr(key), error)) from error
            check_rows(rows, spec, role, function, key)
            if program.rejects:
                # A misfit must fail this call: when all keys are stored, it's too late to undo it.
                check_fit(rows, spec.result, role, function, key)
                if snapshot.was_set:
                    what = "left a state that"
                    check_fit([snapshot.value], spec.state, role, function, key, what)
        except UserFunctionError as error:
            if not program.rejects:
                raise
            return Failure.of(error)
        self._stamp(run.since, snapshot, times_us, is_new=before is MISSING)
        if not snapshot.is_set and snapshot.value is not MISSING:
            # The call may have modified its object without `set`: that has no effect.
            snapshot.value = before
        run.snapshot = snapshot
        if rows:
            run.returned.append((role, rows))
        return None

    def _stamp(
        self, since: Stamps, snapshot: KeySnapshot, times_us: Sequence[int], *, is_new: bool
    ) -> None:
        """Update the instants of the last events, and of the creation and last set of the state."""
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
    """Return the result rows of the calls for some keys; an error names the function."""
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


def failed_outputs(
    spec: AnyStatefulSpec, failed: Sequence[tuple[Any, Failure]]
) -> list[SideOutput]:
    """Return a rejected row for each failure of `on_timer`, given with its key."""
    if not failed:
        return []
    failures = dict(enumerate(failure for _, failure in failed))
    arrays = _key_arrays(spec, [key for key, _ in failed])
    rows = pa.Table.from_arrays(arrays, schema=pa.schema(spec.key_schema))
    return SideOutput.with_failures("failed_output", failures, rows)


def _key_arrays(spec: AnyStatefulSpec, keys: Sequence[Any]) -> list[pa.Array]:
    # The keys (a, 1) and (b, 2) have the columns a, b and 1, 2.
    columns = zip(*keys, strict=True)
    return [
        pa.array(values if field.type.plain else map(field.type.dump, values), field.type.arrow)
        for field, values in zip(spec.key_fields, columns, strict=True)
    ]
