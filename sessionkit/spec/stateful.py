"""What a user writes for state per key that isn't a session: a spec, and what it may return."""

from collections.abc import Callable
from typing import Any, Final, Generic, Literal, TypeAlias

import attrs
import pandas as pd
import pyarrow as pa

from sessionkit._validators import choice
from sessionkit.errors import SpecError, with_hint
from sessionkit.spec.shared import E, R, S, Spec, check_delay, check_shared, show_shared_arguments
from sessionkit.spec.signatures import Place, check_function, check_key
from sessionkit.spec.views import BatchTimes, KeyState, KeyTimes, TimerRules
from sessionkit.state import codec_of
from sessionkit.timeouts import Clock, EventTimeGap, FirstOf, TimeoutPolicy, deadlines_of
from sessionkit.typing import FinishResult

__all__ = [
    "AnyStatefulSpec",
    "BucketResult",
    "ByBucket",
    "ByFrame",
    "Handler",
    "StatefulSpec",
    "by_bucket",
    "by_frame",
]

Handler: TypeAlias = Literal["events", "frame", "bucket"]


@attrs.frozen
class BucketResult:
    """
    What a function under `by_bucket` returns.

    Attributes:
        states: The state of each key that has one from now on, a row a key: key columns and the
            fields of the state. A key that was handed in and is not here is forgotten.
        results: Result rows: key columns and the fields of the result; None for no rows.
    """

    states: pa.Table
    results: pa.Table | None = None


@attrs.frozen
class ByFrame(Generic[S, R]):
    """A function that takes the events of a key as a DataFrame; made by `by_frame`."""

    function: Callable[[Any, pd.DataFrame, KeyState[S], KeyTimes], FinishResult[R] | pd.DataFrame]


@attrs.frozen
class ByBucket:
    """A function that takes many keys at once as Arrow tables; made by `by_bucket`."""

    function: Callable[[pa.Table, pa.Table, BatchTimes], BucketResult]


def by_frame(
    function: Callable[[Any, pd.DataFrame, KeyState[S], KeyTimes], FinishResult[R] | pd.DataFrame],
) -> ByFrame[S, R]:
    """
    Ask for the events of a key as a pandas DataFrame: `process=by_frame(function)`.

    The DataFrame has a column for the event time and one for each field of the event, and its rows
    come in the order of event time, then content. Validators and converters of the event class
    don't run.

    Args:
        function: `function(key, events, state, times)`. It returns what `process` returns, and it
            may also return a DataFrame with the fields of the result as columns.
    """
    return ByFrame(function)


def by_bucket(function: Callable[[pa.Table, pa.Table, BatchTimes], BucketResult]) -> ByBucket:
    """
    Ask for all keys of a bucket at once, as Arrow tables: `process=by_bucket(function)`.

    Args:
        function: `function(events, states, times)`, called once for each bucket and micro-batch
            with events: the table of the events, in the order of key, event time and content, and
            that of the states of their keys, both with the key columns in front. `times` is a
            `BatchTimes`. It returns a `BucketResult`, and it can't set timers.
    """
    return ByBucket(function)


def _without_sessions(_: Any, __: "attrs.Attribute[str]", value: object) -> None:
    if value == "drop_session":
        found = '`on_error="drop_session"` drops sessions, and a StatefulSpec has none'
        hint = 'write on_error="reject": a call that raises leaves the state of its key as it was'
        raise SpecError(with_hint(found, hint))


def _flag(_: Any, attribute: "attrs.Attribute[bool]", value: object) -> None:
    if not isinstance(value, bool):
        found = f"`{attribute.name}` must be True or False, found {value!r}"
        raise SpecError(with_hint(found, "leave it out for False"))


@attrs.frozen(kw_only=True)
class StatefulSpec(Spec[E, S, R]):
    """
    The definition of logic over any state per key: what is read, what is kept, when it is over.

    The same spec runs on a stream, on a batch and in a test.

    Attributes:
        process: `process(key, events, state, times)`, called once for each key and micro-batch
            with events: a list of `event` objects in the order of event time, then content. It
            returns a result row, several, or None, or is a generator of rows. `state` is a
            `KeyState`, `times` a `KeyTimes`. For events as a DataFrame, or many keys at once as
            Arrow tables, pass `by_frame(function)` or `by_bucket(function)`.
        on_timer: `on_timer(key, name, state, times)`, called when a named timer of the key has
            gone off, or, with the name `event_time_gap`, `processing_time_gap` or `time_to_live`,
            when the timeout policy ends the key; after that call nothing of the key is kept.
        timeout: When a key is over: `EventTimeGap`, `ProcessingTimeGap`, `TimeToLive`, several
            of them joined with `|`, or `NoTimeout()` where `process` itself removes every state.
        processing_timers: Whether timers may be set in processing time. Spark then runs a
            micro-batch at every trigger, and with the `availableNow` trigger never ends.
        late: What becomes of an event at or past the watermark. `"reject"`: it is counted as
            late and left out. `"process"`: it is handed to `process` like any other.

    Raises:
        SpecError: Something cannot work; the message says what to change.
        FieldTypeError: A class has fields that cannot be stored; all are named.
    """

    process: (
        Callable[[Any, list[E], KeyState[S], KeyTimes], FinishResult[R]] | ByFrame[S, R] | ByBucket
    )
    on_timer: Callable[[Any, str, KeyState[S], KeyTimes], FinishResult[R]] | None = None
    timeout: TimeoutPolicy
    processing_timers: bool = attrs.field(default=False, validator=_flag)
    late: Literal["reject", "process"] = attrs.field(
        default="reject", validator=choice("reject", "process")
    )
    on_error: Literal["raise", "reject"] = attrs.field(
        default="raise", validator=[_without_sessions, choice("raise", "reject")]
    )

    def __attrs_post_init__(self) -> None:
        """Read what the functions say, and check what the single fields cannot see."""
        _check_functions(self)
        events = {"process": 1} if self.handler == "events" else {}
        self._set_class("event", _annotations(self, **events), "`events: list[Payment]`")
        views = _annotations(self, process=2, on_timer=2)
        self._set_class("state", views, "`state: KeyState[Account]`")
        rows = _annotations(self, process=None, on_timer=None)
        self._set_class("result", rows, "what `process` returns")
        check_shared(self)
        keyed = {} if self.handler == "bucket" else {"process": 0}
        for place in _annotations(self, **keyed, on_timer=0):
            check_key(place, self.keys)
        _check_clocks(self)
        _check_order(self)
        if self.handler == "bucket":
            _check_bucket(self)

    @property
    def handler(self) -> Handler:
        """How `process` takes events: as a list, as a DataFrame, or a whole bucket of keys."""
        if isinstance(self.process, ByFrame):
            return "frame"
        return "bucket" if isinstance(self.process, ByBucket) else "events"

    @property
    def function(self) -> Callable[..., Any]:
        """The function in `process`, without what `by_frame` or `by_bucket` put around it."""
        if isinstance(self.process, ByFrame | ByBucket):
            return self.process.function
        return self.process

    @property
    def clock(self) -> Clock | None:
        """
        The clock by which Spark wakes keys: the kind of timeout that its operator has.

        An operator has one kind. Where both clocks are needed it is that of processing time, under
        which every bucket with an event timer is looked at in each micro-batch.
        """
        clocks = {deadline.clock for deadline in deadlines_of(self.timeout)}
        if self.processing_timers or "processing_time" in clocks:
            return "processing_time"
        return None if self.watermark_delay is None else "event_time"

    @property
    def timer_rules(self) -> TimerRules:
        """Which timers the functions may set."""
        return TimerRules(
            on_timer=self.on_timer is not None,
            event_time=self.watermark_delay is not None,
            processing_time=self.processing_timers,
            reserved=POLICY_NAMES,
        )


show_shared_arguments(StatefulSpec)
AnyStatefulSpec: TypeAlias = StatefulSpec[Any, Any, Any]
POLICY_NAMES: Final = frozenset({"event_time_gap", "processing_time_gap", "time_to_live"})


def _annotations(spec: AnyStatefulSpec, **positions: int | None) -> list[Place]:
    """Return the annotations at these positions of the functions that the spec has."""
    functions: dict[str, Any] = {"process": spec.function, "on_timer": spec.on_timer}
    given = {role: place for role, place in positions.items() if functions[role] is not None}
    return [Place(role, functions[role], position) for role, position in given.items()]


def _check_clocks(spec: AnyStatefulSpec) -> None:
    policy = spec.timeout
    if not isinstance(policy, TimeoutPolicy):
        found = f"`timeout` must be a policy, found {policy!r}"
        hint = 'write timeout=EventTimeGap("30 minutes"), TimeToLive("7 days") or NoTimeout()'
        raise SpecError(with_hint(found, hint))
    for part in policy.policies if isinstance(policy, FirstOf) else (policy,):
        if isinstance(part, EventTimeGap) and (callable(part.gap) or not part.gap_inclusive):
            found = (
                f"`timeout` of a StatefulSpec has one gap and no events to split, found {part!r}"
            )
            raise SpecError(with_hint(found, 'write EventTimeGap("30 minutes")'))
    check_delay(spec)
    if spec.watermark_delay is not None:
        if spec.event_time is None:
            found = "`watermark_delay` needs an event time, and `event_time` is missing"
            raise SpecError(with_hint(found, 'add event_time="ts"'))
    elif any(deadline.clock == "event_time" for deadline in deadlines_of(policy)):
        found = f"`timeout` counts in event time, and there is no watermark: {policy!r}"
        raise SpecError(with_hint(found, 'add event_time="ts" and watermark_delay="10 minutes"'))
    elif spec.late != "reject":
        found = "`late` has no meaning without a watermark"
        raise SpecError(with_hint(found, 'add watermark_delay="10 minutes", or leave it out'))


def _check_order(spec: AnyStatefulSpec) -> None:
    if spec.order != "event_time":
        return
    refused = '`order="event_time"`'
    if spec.watermark_delay is None:
        found = f"{refused} waits for the watermark, and there is none"
        hint = 'add event_time="ts" and watermark_delay="10 minutes"'
        raise SpecError(with_hint(found, hint))
    if spec.late == "process":
        found = f'{refused} has no place for the late events of `late="process"`'
        raise SpecError(with_hint(found, 'leave `late` out, or write order="arrival"'))
    if spec.handler != "events":
        found = f"{refused} hands out events as a list, and `process` is by_{spec.handler}(...)"
        hint = 'pass the function over a list of events, or write order="arrival"'
        raise SpecError(with_hint(found, hint))


def _check_functions(spec: AnyStatefulSpec) -> None:
    wanted = "events, states, times" if spec.handler == "bucket" else "key, events, state, times"
    check_function(spec.function, "process", **dict.fromkeys(wanted.split(", ")))
    if spec.on_timer is not None:
        check_function(spec.on_timer, "on_timer", key=None, name=None, state=None, times=None)
    elif spec.processing_timers:
        found = "`processing_timers` is asked for, and there is no function to call for them"
        raise SpecError(with_hint(found, "add on_timer=..., or leave processing_timers out"))


def _check_bucket(spec: AnyStatefulSpec) -> None:
    for field in codec_of(spec.state).type.fields:
        if field.name in spec.keys:
            found = f"a function by_bucket(...) would be given two columns named `{field.name}`"
            raise SpecError(with_hint(found, f"leave the key out of {spec.state.__name__}"))
    if spec.layout == "per_key":
        found = "by_bucket(...) folds many keys at once, and layout='per_key' has one a group"
        raise SpecError(with_hint(found, 'write layout="buckets", or pass by_frame(...)'))
    if spec.processing_timers:
        found = "`processing_timers` is asked for, and a function by_bucket(...) cannot set a timer"
        hint = "leave processing_timers out, or pass a function over the events of one key"
        raise SpecError(with_hint(found, hint))
