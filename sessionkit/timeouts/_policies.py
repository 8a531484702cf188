"""Timeout policies: frozen values that say when a session or a key ends."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import attrs

from sessionkit._arguments import choice, explained, flag
from sessionkit._instants import Duration, duration_of
from sessionkit.errors import SpecError

Gap: TypeAlias = Duration | Callable[[Any], timedelta]
Clock: TypeAlias = Literal["event_time", "processing_time"]
"""
A clock of a query.

`"event_time"` is the watermark. `"processing_time"` is the driver's clock at the start of the
micro-batch.
"""


def _read_gap(value: Duration) -> timedelta:
    return duration_of(value, "gap")


def read_max_gap(value: Duration) -> timedelta:
    return duration_of(value, "max_gap")


def _read_span(value: Duration) -> timedelta:
    return duration_of(value, "span")


class _Combinable:
    __slots__ = ()

    def __or__(self, other: "TimeoutPolicy") -> "FirstOf":
        """Expire a key when the first of both policies does."""
        return FirstOf((self, other))

    def __ror__(self, other: Any) -> "FirstOf":
        """Refuse anything but a policy on the left."""
        return FirstOf((other, self))

    if not TYPE_CHECKING:  # a type checker reports it itself

        def __and__(self, other: object) -> NoReturn:
            """Refuse to wait for both policies."""
            found = f"policies are combined by `|`, found `&` between {self!r} and {other!r}"
            raise SpecError(found, "write policy | policy: a key expires when the first one does")


@explained()
@attrs.frozen
class NoTimeout(_Combinable):
    """
    Never expire keys: a state stays until your code removes it.

    For a `StatefulSpec` alone: a `SessionSpec` refuses it.
    """


@explained()
@attrs.frozen
class TimeToLive(_Combinable):
    """
    Expire a key a fixed time after its state was created or last set.

    For a `StatefulSpec`. By default it counts in processing time; pass `clock="event_time"` for
    event time.

    Attributes:
        span: How long the state lives, a `timedelta` or text such as `"7 days"`.
        since: When the span starts. `"creation"`: at the first `state.set` of a key without state.
            `"last_update"`: at the last `state.set`.
        clock: `"processing_time"`: the engine's clock; the key expires in the first micro-batch at
            or after the end of the span. Spark then runs a micro-batch at every trigger, and a
            query with the trigger `availableNow` never ends. `"event_time"`: the span starts at the
            key's latest event time when the state was set, and ends once the watermark reaches its
            end.

    Raises:
        SpecError: The span isn't a duration, or isn't positive.
    """

    span: timedelta = attrs.field(converter=_read_span)
    since: Literal["creation", "last_update"] = attrs.field(
        default="creation", kw_only=True, validator=choice
    )
    clock: Literal["processing_time", "event_time"] = attrs.field(
        default="processing_time", kw_only=True, validator=choice
    )


@explained()
@attrs.frozen
class ProcessingTimeGap(_Combinable):
    """
    Expire a key after a time without events, on the engine's clock (processing time).

    For a `StatefulSpec`.

    The gap starts at the processing time of the key's last micro-batch with events. The key expires
    in the first micro-batch at or after the gap's end. With this timeout, Spark runs a micro-batch
    at every trigger, with or without data. Under the trigger `availableNow`, such a query never
    ends, so `start_query` refuses it.

    Attributes:
        gap: How long a key must be silent, a `timedelta` or text such as `"30 minutes"`.

    Raises:
        SpecError: The gap isn't a duration, or isn't positive.
    """

    gap: timedelta = attrs.field(converter=_read_gap)


@explained()
@attrs.frozen
class EventTimeGap(_Combinable):
    """
    Close a session, or expire a key, after a time without events, in event time.

    The end of a session or key is its last event time plus the gap. It closes or expires once the
    watermark reaches exactly that end or passes it. Until then, an event within the gap continues
    it.

    If the gap is a function, each event of a session has its own end: its event time plus its gap.
    The session ends at the latest of these ends. So a later event with a shorter gap never moves
    the end back.

    Example:
        from datetime import timedelta
        from sessionkit import EventTimeGap

        half_an_hour = EventTimeGap("30 minutes")

        def by_page(view):
            return timedelta(hours=2 if view.page == "/film" else 0.5)

        longer_for_films = EventTimeGap(by_page, max_gap="2 hours")

    Attributes:
        gap: The gap, a `timedelta` or text such as `"30 minutes"`; or a function from an event to a
            `timedelta`, for a gap that depends on the event. A `StatefulSpec` takes no function. If
            the function returns a duration that is zero, negative or longer than `max_gap`, the
            event is rejected as `quarantined`.
        max_gap: The longest gap that the function may return. Required with a function, and refused
            without one.
        gap_inclusive: Whether an event exactly one gap after the last one still belongs to the
            session, as in Spark, Flink and Kafka Streams. If False, it starts a new one, as in
            Beam.

    Raises:
        SpecError: The gap isn't a duration or isn't positive, or `max_gap` is missing or given
            without a function.
    """

    gap: Gap = attrs.field()
    max_gap: timedelta | None = attrs.field(
        default=None, kw_only=True, converter=attrs.converters.optional(read_max_gap)
    )
    gap_inclusive: bool = attrs.field(default=True, kw_only=True, validator=flag)

    def __attrs_post_init__(self) -> None:
        if callable(self.gap) and self.max_gap is None:
            found = "`gap` is a function, so its longest result must be declared"
            raise SpecError(found, 'add max_gap, such as max_gap="1 hour"')
        if not callable(self.gap):
            if self.max_gap is not None:
                found = f"`max_gap` needs a gap that is a function, found {self.gap!r}"
                raise SpecError(found, "omit `max_gap`")
            object.__setattr__(self, "gap", duration_of(self.gap, "gap"))

    @property
    def longest(self) -> timedelta:
        """The maximum gap of an event."""
        return self.max_gap or duration_of(self.gap, "gap")


SinglePolicy: TypeAlias = NoTimeout | EventTimeGap | ProcessingTimeGap | TimeToLive


def _flattened(parts: Iterable[Any]) -> tuple[SinglePolicy, ...]:
    if not isinstance(parts, Iterable):
        found = f"`FirstOf` takes a tuple of policies, found {parts!r}"
        raise SpecError(found, "write policy | policy")
    flat = (part.policies if isinstance(part, FirstOf) else [part] for part in parts)
    return tuple(chain.from_iterable(flat))


@explained()
@attrs.frozen
class FirstOf(_Combinable):
    """
    Expire a key at the first of several timeouts: `EventTimeGap("1 hour") | TimeToLive("1 day")`.

    The operator `|` makes one, and so does `FirstOf([...])`.

    Attributes:
        policies: The timeouts: each an `EventTimeGap`, a `ProcessingTimeGap` or a `TimeToLive`.
            When the first one ends the key, `on_timer` receives its name, such as
            `"event_time_gap"`; if two end at the same time, the name of the one listed first.

    Raises:
        SpecError: An entry isn't such a timeout, as `NoTimeout` isn't; two entries differ in their
            span alone, so the shorter one always ends first; or two `TimeToLive` have different
            clocks.
    """

    policies: tuple[SinglePolicy, ...] = attrs.field(converter=_flattened)

    def __attrs_post_init__(self) -> None:
        if not self.policies:
            found = "`FirstOf` combines policies that expire a key, found none"
            raise SpecError(found, "write NoTimeout() for keys that never expire")
        seen: list[tuple[Deadline, ...]] = []
        for policy in self.policies:
            if not isinstance(policy, EventTimeGap | ProcessingTimeGap | TimeToLive):
                found = f"`|` combines policies that expire a key, found {policy!r}"
                hint = "combine an EventTimeGap, a ProcessingTimeGap or a TimeToLive"
                raise SpecError(found, hint)
            spanless = tuple(attrs.evolve(d, span=timedelta(0)) for d in deadlines_of(policy))
            if spanless in seen:
                found = f"`|` combines two policies that count alike, {policy!r} is the second"
                raise SpecError(found, "keep the shorter one, which always ends first")
            seen.append(spanless)
        if len({part.clock for part in self.policies if isinstance(part, TimeToLive)}) > 1:
            found = "`|` combines a TimeToLive on each clock, but a state has one age"
            raise SpecError(found, "put both on one clock, or use a gap for one")


TimeoutPolicy: TypeAlias = SinglePolicy | FirstOf
"""
A timeout policy: the `timeout` of a `StatefulSpec`, which also takes a duration.

Policies joined with `|` are a `FirstOf`: the first policy that is due ends the key.
"""


@attrs.frozen
class Deadline:
    """A span on a clock after an instant of the key; `on_timer` receives its name."""

    name: str
    clock: Clock
    since: Literal["last_event_time", "last_processing_time", "created", "updated"]
    span: timedelta


def deadlines_of(policy: TimeoutPolicy) -> tuple[Deadline, ...]:
    """Return the deadline of each part of a policy."""
    if isinstance(policy, FirstOf):
        return tuple(deadline for part in policy.policies for deadline in deadlines_of(part))
    if isinstance(policy, EventTimeGap):
        return (Deadline("event_time_gap", "event_time", "last_event_time", policy.longest),)
    if isinstance(policy, ProcessingTimeGap):
        clock: Clock = "processing_time"
        return (Deadline("processing_time_gap", clock, "last_processing_time", policy.gap),)
    if isinstance(policy, TimeToLive):
        since: dict[str, Any] = {"creation": "created", "last_update": "updated"}
        return (Deadline("time_to_live", policy.clock, since[policy.since], policy.span),)
    return ()
