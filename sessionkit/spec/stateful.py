"""The spec of arbitrary state per key, and its options."""

from collections.abc import Callable, Sequence
from functools import cached_property
from types import NoneType, UnionType
from typing import Any, Generic, TypeAlias, Union, get_args, get_origin

import attrs
import pyarrow as pa

from sessionkit._arguments import explained
from sessionkit._typing import FinishResult
from sessionkit.errors import SpecError
from sessionkit.spec.base import EXAMPLES, E, R, S, Spec, check_shared, read_timeout, set_derived
from sessionkit.spec.bytecode import attributes_alone
from sessionkit.spec.options import Lateness
from sessionkit.spec.signatures import (
    Place,
    Signature,
    check_function,
    check_key_annotation,
    class_of,
    classes_in,
)
from sessionkit.spec.views import BatchTimes, KeyState, KeyTimes, TimerRules
from sessionkit.state._codec import codec_of
from sessionkit.state._fields import fields_of, is_record, not_a_record
from sessionkit.timeouts._policies import Clock, EventTimeGap, FirstOf, TimeoutPolicy, deadlines_of


@explained()
@attrs.frozen
class BucketResult:
    """
    What a function under `by_bucket` returns: states and rows, as Arrow tables.

    Attributes:
        states: The state of each key from now on, one row a key: the key columns and the fields of
            the state. A key with events in this call and no row here loses its state.
        results: Result rows: key columns and the fields of the result; None for no rows.
    """

    states: pa.Table
    results: pa.Table | None = None


@explained()
@attrs.frozen
class by_bucket:  # noqa: N801 (called like a function, as `functools.partial` is)
    """
    Take many keys at once as Arrow tables, not one key a call: `process=by_bucket(function)`.

    The keys of a call are a bucket: a part of all keys, chosen by their hash; see
    `Storage(bucket_count=...)`. Annotations of such a function name no classes, so pass `event`,
    `state` and `result` to the `StatefulSpec`.

    Attributes:
        function: `function(events, states, times)`, called once for each bucket and micro-batch
            with events. `events` has a row for each event: the key columns, the event time under
            its name, and the fields of the event; sorted by key, event time and content. `states`
            has a row for each key of `events` that has a state: the key columns and the fields of
            the state. `times` is a `BatchTimes`. The function returns a `BucketResult`. It can't
            set timers.
    """

    function: Callable[[pa.Table, pa.Table, BatchTimes], BucketResult]


@explained()
@attrs.frozen
class by_processing_time(Generic[S, R]):  # noqa: N801
    """
    Allow timers in processing time too: `on_timer=by_processing_time(function)`.

    Both `process` and `function` may then call `times.set_processing_timer`.

    Spark then runs a micro-batch at every trigger, and a query with the trigger `availableNow`
    never ends. A test driver needs a `processing_time`.

    Attributes:
        function: `function(key, name, state, times)`, as for `on_timer`.
    """

    function: Callable[[Any, str, KeyState[S], KeyTimes], FinishResult[R]]


@explained(EXAMPLES)
@attrs.frozen(kw_only=True, repr=False)
class StatefulSpec(Spec[E, S, R]):
    """
    Define your own logic with a state for each key: its input, its functions, and its timeout.

    The same spec runs on a stream, on a batch and in a test.

    Example:
        import attrs
        from sessionkit import KeyState, KeyTimes, StatefulSpec, TimeToLive

        @attrs.frozen
        class Reader:
            pages: int

        # View: as in the example of SessionSpec.of
        def process(key, events: list[View], state: KeyState[Reader], times: KeyTimes) -> Reader:
            reader = Reader(state.get(Reader(0)).pages + len(events))
            state.set(reader)
            return reader

        readers = StatefulSpec(
            process=process, keys={"user": str}, event_time="ts", watermark_delay="10 minutes",
            timeout=TimeToLive("90 days", since="last_update", clock="event_time"),
        )

    Attributes:
        keys, order, inputs, storage: As in a `SessionSpec`.
        process: `process(key, events, state, times)`, called once for each key and micro-batch with
            events: a list of `event` objects sorted by event time, then content. `state` is a
            `KeyState`, `times` a `KeyTimes`. It returns a result row, a list of rows, or None, or
            is a generator of rows. To take many keys at once as Arrow tables, pass
            `by_bucket(function)`.
        on_timer: `on_timer(key, name, state, times)`, called when a timer of the key fires, with
            the timer's name. It's also called when the `timeout` ends the key, with the name
            `event_time_gap`, `processing_time_gap` or `time_to_live`; after that call, the key's
            state and timers are dropped. It returns what `process` does. Left out, a key ends
            without a row. For timers in processing time, pass `by_processing_time(function)`.
        event, state, result: The attrs classes, as in `Functions`. If no function returns a row,
            pass `result` all the same.
        timeout: Required: when a key is over. `EventTimeGap`, or its gap, such as `"30 minutes"`;
            `ProcessingTimeGap`, `TimeToLive`, several of these joined with `|`, or `NoTimeout()` if
            `process` itself removes every state.
        event_time: The timestamp column with the time of each event. Without it, events are sorted
            by content.
        watermark_delay: How far the watermark is behind the latest event time of earlier
            micro-batches: how late an event may arrive and still be counted for certain. Without
            it, there is no watermark, and no event is late.
        on_error: `"raise"` stops the query if one of your functions raises. `"reject"` counts the
            events of that call as failed, and continues without them.
        lateness: How to handle late events: `Lateness(late_events="process")`.

    Raises:
        SpecError: `timeout` is missing, a function doesn't take these arguments, nothing ever sets
            the state that `process` asks for, or two options contradict each other, such as a
            timeout in event time without a `watermark_delay`.
        SpecError: A field of a class has a type that can't be stored. The message names all such
            fields.
    """

    process: Callable[[Any, list[E], KeyState[S], KeyTimes], FinishResult[R]] | by_bucket
    on_timer: (
        Callable[[Any, str, KeyState[S], KeyTimes], FinishResult[R]]
        | by_processing_time[S, R]
        | None
    ) = None
    _event: type[E] | None = attrs.field(default=None, alias="event", eq=False, repr=False)
    _state: type[S] | None = attrs.field(default=None, alias="state", eq=False, repr=False)
    _result: type[R] | None = attrs.field(default=None, alias="result", eq=False, repr=False)
    timeout: TimeoutPolicy = attrs.field(converter=read_timeout)

    def __attrs_post_init__(self) -> None:
        signatures = _signatures(self)
        of_a_key = [s for s in signatures if s.role == "on_timer" or not self.takes_buckets]
        of_process = [place for s in of_a_key if s.role == "process" for place in s.parameters]
        event = class_of("event", self._event, of_process[1:2], "`events: list[Payment]`")
        views = [place for signature in signatures for place in signature.parameters[2:3]]
        _check_views(views, self._state)
        state = class_of("state", self._state, views, "`state: KeyState[Account]`")
        rows = [signature.returned for signature in signatures]
        result = class_of("result", self._result, rows, "what `process` returns")
        must_return = frozenset(s.role for s in signatures if s.always_returns)
        set_derived(self, event=event, state=state, result=result, must_return=must_return)
        for cls in (event, state, result):
            fields_of(cls)
        _check_meaning(self)
        check_shared(self)
        if not self.takes_buckets:
            _check_set(signatures)
        for place in [place for signature in of_a_key for place in signature.parameters[:1]]:
            check_key_annotation(place, self.keys)
        _check_clocks(self)
        _check_order(self)
        if self.takes_buckets:
            _check_bucket(self)

    @property
    def takes_buckets(self) -> bool:
        """Whether `process` takes all keys of a bucket at once, instead of a single key."""
        return isinstance(self.process, by_bucket)

    @property
    def function(self) -> Callable[..., Any]:
        """The function in `process`, without the wrapper `by_bucket`."""
        return self.process.function if isinstance(self.process, by_bucket) else self.process

    @property
    def timer_function(self) -> Callable[..., Any] | None:
        """The function in `on_timer`, without the wrapper `by_processing_time`."""
        if isinstance(self.on_timer, by_processing_time):
            return self.on_timer.function
        return self.on_timer

    @property
    def processing_timers(self) -> bool:
        """Whether timers may be set in processing time."""
        return isinstance(self.on_timer, by_processing_time)

    @cached_property
    def clock(self) -> Clock | None:
        """
        The clock of Spark's timeouts; processing time if the spec needs both clocks.

        Each micro-batch then looks at every bucket with an event timer.
        """
        clocks = {deadline.clock for deadline in deadlines_of(self.timeout)}
        if self.processing_timers or "processing_time" in clocks:
            return "processing_time"
        return None if self.watermark_delay is None else "event_time"

    @property
    def timer_rules(self) -> TimerRules:
        """Which timers the functions may set."""
        return TimerRules(
            on_timer=self.timer_function is not None,
            event_time=self.watermark_delay is not None,
            processing_time=self.processing_timers,
        )


AnyStatefulSpec: TypeAlias = StatefulSpec[Any, Any, Any]
"""A `StatefulSpec` of any event, state and result class, for annotations."""


def _check_views(places: Sequence[Place], state: type[Any] | None) -> None:
    """Check that annotations such as `KeyState[Account]` name a class, not a collection."""
    annotated = [cls for place in places for cls in classes_in(place.annotation, place.owner)]
    bases = {Any, NoneType}.union(*(getattr(cls, "__mro__", ()) for cls in (*annotated, state)))
    for place in places:
        parts = get_args(place.annotation) if get_origin(place.annotation) is KeyState else ()
        if parts and get_origin(parts[0]) in {Union, UnionType}:
            parts = get_args(parts[0])
        for part in parts:
            cls = get_origin(part) or part
            if isinstance(cls, type) and not is_record(cls) and cls not in bases:
                text = cls.__name__ if cls is part else str(part)
                found = f"{place} says KeyState[{text}], which isn't an attrs class or a dataclass"
                listed = f"annotate KeyState with a class that has a field `items: {text}`"
                _, hint = not_a_record(cls, instead=listed)
                raise SpecError(found, hint)


def _check_meaning(spec: AnyStatefulSpec) -> None:
    """Check that no option is set that only a `SessionSpec` supports."""
    lateness = attrs.evolve(spec.lateness, late_events="reject", measured=True)
    for field in attrs.fields(Lateness):
        if getattr(lateness, field.name) != field.default:
            found = f"`{field.name}` is about sessions, and a StatefulSpec has none"
            raise SpecError(found, "leave it out; `late_events` says what happens to late events")
    if spec.inputs.drop_duplicates_for is not None:
        found = "`drop_duplicates_for` is about sessions, and a StatefulSpec has none"
        hint = "leave it out; docs/how-to/deduplicate.md shows what drops copies before"
        raise SpecError(found, hint)


def _check_set(signatures: Sequence[Signature]) -> None:
    """Check that a function sets the state that `process` asks for."""
    asked = list[set[str]]()
    for signature in signatures:
        views = [place.name for place in signature.parameters[2:3]]
        plain = signature.plain
        attributes = attributes_alone(plain, views[0]) if plain and views else None
        if attributes is None:
            return
        asked.append(attributes)
    if "get" in asked[0] and "set" not in set().union(*asked):
        found = f"{signatures[0].returned} asks for the state of a key, and nothing ever sets it"
        raise SpecError(found, "call `state.set(...)` before it returns")


def _check_clocks(spec: AnyStatefulSpec) -> None:
    policy = spec.timeout
    if not isinstance(policy, TimeoutPolicy):
        found = f"`timeout` must be a policy, found {policy!r}"
        hint = 'write timeout=EventTimeGap("30 minutes"), TimeToLive("7 days") or NoTimeout()'
        raise SpecError(found, hint)
    for part in policy.policies if isinstance(policy, FirstOf) else (policy,):
        if isinstance(part, EventTimeGap) and (callable(part.gap) or not part.gap_inclusive):
            found = f"`timeout` of a StatefulSpec must have one gap, inclusive, found {part!r}"
            raise SpecError(found, 'write EventTimeGap("30 minutes")')
    if spec.watermark_delay is not None:
        if spec.event_time is None:
            found = "`watermark_delay` needs an event time, and `event_time` is missing"
            raise SpecError(found, 'add event_time="ts"')
    elif any(deadline.clock == "event_time" for deadline in deadlines_of(policy)):
        found = f"`timeout` counts in event time, and there is no watermark: {policy!r}"
        raise SpecError(found, 'add event_time="ts" and watermark_delay="10 minutes"')
    elif spec.lateness.late_events != "reject":
        found = "`late_events` has no meaning without a watermark"
        raise SpecError(found, 'add watermark_delay="10 minutes", or leave it out')


def _check_order(spec: AnyStatefulSpec) -> None:
    if spec.order != "event_time":
        return
    refused = '`order="event_time"`'
    if spec.watermark_delay is None:
        found = f"{refused} waits for the watermark, and there is none"
        raise SpecError(found, 'add event_time="ts" and watermark_delay="10 minutes"')
    if spec.lateness.late_events == "process":
        found = f'{refused} has no place for the late events of `late_events="process"`'
        raise SpecError(found, 'leave `late_events` out, or write order="arrival"')
    if spec.takes_buckets:
        found = f"{refused} hands out events as a list, and `process` is by_bucket(...)"
        raise SpecError(found, 'pass the function over a list of events, or write order="arrival"')


def _signatures(spec: AnyStatefulSpec) -> list[Signature]:
    """Check the functions of the spec; return their signatures."""
    views = {"state": KeyState[Any], "times": KeyTimes}
    arguments: dict[str, Any] = {"key": None, "events": list[Any], **views}
    if spec.takes_buckets:
        arguments = {"events": pa.Table, "states": pa.Table, "times": BatchTimes}
    signatures = [check_function(spec.function, "process", **arguments)]
    if spec.on_timer is not None:
        on_timer = check_function(spec.timer_function, "on_timer", key=None, name=None, **views)
        signatures.append(on_timer)
    return signatures


def _check_bucket(spec: AnyStatefulSpec) -> None:
    for field in codec_of(spec.state).type.fields:
        if field.name in spec.keys:
            found = f"a function by_bucket(...) would be given two columns named `{field.name}`"
            raise SpecError(found, f"leave the key out of {spec.state.__name__}")
    if spec.processing_timers:
        found = "by_processing_time(...) is for timers, and by_bucket(...) cannot set one"
        hint = "leave `on_timer` without it, or pass a function over the events of one key"
        raise SpecError(found, hint)
