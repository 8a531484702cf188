"""The policies: frozen values that say when a session or a key is over."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import attrs

from sessionkit._instants import Duration, duration
from sessionkit.errors import SpecError, with_hint

__all__ = [
    "Clock",
    "Deadline",
    "EventTimeGap",
    "FirstOf",
    "NoTimeout",
    "ProcessingTimeGap",
    "TimeToLive",
    "TimeoutPolicy",
    "deadlines_of",
]

Gap: TypeAlias = Duration | Callable[[Any], timedelta]
Clock: TypeAlias = Literal["event_time", "processing_time"]


def _read_gap(value: Duration) -> timedelta:
    return duration(value, "gap")


def _read_at_most(value: Duration | None) -> timedelta | None:
    return None if value is None else duration(value, "at_most")


def _read_span(value: Duration) -> timedelta:
    return duration(value, "span")


def _one_of(*options: str) -> Any:
    def check(_: Any, attribute: "attrs.Attribute[str]", value: object) -> None:
        if value not in options:
            found = f"`{attribute.name}` must be {' or '.join(map(repr, options))}, found {value!r}"
            raise SpecError(with_hint(found, f"leave it out for {options[0]!r}"))

    return attrs.validators.and_(check)


@attrs.frozen
class NoTimeout:
    """A key is never over by itself: its state stays until the user's code removes it."""

    def __or__(self, other: object) -> "FirstOf":
        """Refuse: nothing can be added to never."""
        return FirstOf((self, other))


@attrs.frozen
class TimeToLive:
    """
    End a key some time after its state was made, or was last set.

    Attributes:
        span: How long the state lives, a `timedelta` or a text such as `"7 days"`.
        since: What it is counted from. `"creation"`: the first `state.set` of a key without state.
            `"last_update"`: the last `state.set`.
        clock: `"processing_time"`: the engine's clock, for which Spark runs a micro-batch at every
            trigger and with the `availableNow` trigger never ends. `"event_time"`: counted from
            the latest event time that the key had seen when the state was set, until the
            watermark.

    Raises:
        SpecError: The span is no duration, or not positive.
    """

    span: timedelta = attrs.field(converter=_read_span)
    since: Literal["creation", "last_update"] = attrs.field(
        default="creation", kw_only=True, validator=_one_of("creation", "last_update")
    )
    clock: Clock = attrs.field(
        default="processing_time",
        kw_only=True,
        validator=_one_of("processing_time", "event_time"),
    )

    def __or__(self, other: "TimeoutPolicy") -> "FirstOf":
        """End a key when the first of the two does."""
        return FirstOf((self, other))


@attrs.frozen
class ProcessingTimeGap:
    """
    End a key after a time without events, counted on the engine's clock (processing time).

    It is over once the processing time of a micro-batch reaches that of the last one in which the
    key had events plus the gap. Spark runs a micro-batch at every trigger under this policy, with
    or without data, and with the `availableNow` trigger it never ends.

    Attributes:
        gap: How long a key must have been silent, a `timedelta` or a text such as `"30 minutes"`.

    Raises:
        SpecError: The gap is no duration, or not positive.
    """

    gap: timedelta = attrs.field(converter=_read_gap)

    def __or__(self, other: "TimeoutPolicy") -> "FirstOf":
        """End a key when the first of the two does."""
        return FirstOf((self, other))


@attrs.frozen
class EventTimeGap:
    """
    End a session, or a key, after a time without events, counted in event time.

    It is over once the watermark reaches its end: its last event plus the gap.

    Attributes:
        gap: The gap, a `timedelta` or a text such as `"30 minutes"`; or a function of the event
            that returns a `timedelta`, for a gap of each event's own. An event for which it is
            not positive, or longer than `at_most`, is quarantined.
        at_most: The longest gap that the function may return. Wanted with a function only.
        gap_inclusive: Whether an event exactly one gap after the last one belongs to the session,
            as in Spark, Flink and Kafka Streams. False: it starts a new one, as in Beam.

    Raises:
        SpecError: The gap is no duration or not positive, or `at_most` is missing or too much.
    """

    gap: Gap = attrs.field()
    at_most: timedelta | None = attrs.field(
        default=None,
        kw_only=True,
        converter=_read_at_most,
    )
    gap_inclusive: bool = attrs.field(default=True, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Read the gap and check the options against each other."""
        if not isinstance(self.gap_inclusive, bool):
            found = f"`gap_inclusive` must be True or False, found {self.gap_inclusive!r}"
            raise SpecError(with_hint(found, "leave it out for Spark's rule, True"))
        if callable(self.gap) and self.at_most is None:
            found = "`gap` is a function, so its longest answer must be declared"
            raise SpecError(with_hint(found, 'add at_most="1 hour", or what fits the function'))
        if not callable(self.gap):
            if self.at_most is not None:
                found = f"`at_most` is for a gap that is a function, found the gap {self.gap!r}"
                raise SpecError(with_hint(found, "leave `at_most` out"))
            object.__setattr__(self, "gap", duration(self.gap, "gap"))

    @property
    def longest(self) -> timedelta:
        """The longest gap that an event can have."""
        if self.at_most is not None:
            return self.at_most
        return duration(self.gap, "gap")

    def __or__(self, other: "TimeoutPolicy") -> "FirstOf":
        """End a key when the first of the two does."""
        return FirstOf((self, other))


SinglePolicy: TypeAlias = NoTimeout | EventTimeGap | ProcessingTimeGap | TimeToLive


def _flattened(parts: Iterable[Any]) -> tuple[SinglePolicy, ...]:
    if not isinstance(parts, Iterable):
        found = f"`FirstOf` takes a tuple of policies, found {parts!r}"
        raise SpecError(with_hint(found, "write policy | policy"))
    return tuple(
        policy
        for part in parts
        for policy in (part.policies if isinstance(part, FirstOf) else [part])
    )


@attrs.frozen
class FirstOf:
    """
    End a key when the first of several policies does; written `policy | policy`.

    Attributes:
        policies: The policies. `on_timer` is told the one whose end comes first, of equal ends
            the one named first.

    Raises:
        SpecError: A part is no policy, or adds nothing: `NoTimeout`, or a second one of a kind
            that counts the same way, of which the shorter always comes first.
    """

    policies: tuple[SinglePolicy, ...] = attrs.field(converter=_flattened)

    def __attrs_post_init__(self) -> None:
        """Check that every part adds something."""
        if not self.policies:
            found = "`FirstOf` joins policies that end a key, found none"
            raise SpecError(with_hint(found, "write NoTimeout() for a key that is never over"))
        ways: list[tuple[Deadline, ...]] = []
        for policy in self.policies:
            if not isinstance(policy, EventTimeGap | ProcessingTimeGap | TimeToLive):
                found = f"`|` joins policies that end a key, found {policy!r}"
                hint = "join an EventTimeGap, a ProcessingTimeGap or a TimeToLive"
                raise SpecError(with_hint(found, hint))
            way = tuple(attrs.evolve(d, span=timedelta(0)) for d in deadlines_of(policy))
            if way in ways:
                found = f"`|` joins two policies that count alike, {policy!r} is the second"
                raise SpecError(with_hint(found, "keep the shorter one, it always comes first"))
            ways.append(way)
        if len({part.clock for part in self.policies if isinstance(part, TimeToLive)}) > 1:
            found = "`|` joins a TimeToLive on each clock, and a state has one age"
            raise SpecError(with_hint(found, "count both on one clock, or use a gap for one"))

    def __or__(self, other: "TimeoutPolicy") -> "FirstOf":
        """End a key when the first of them all does."""
        return FirstOf((self, other))


TimeoutPolicy: TypeAlias = SinglePolicy | FirstOf


@attrs.frozen
class Deadline:
    """
    How a policy counts.

    Attributes:
        name: The name under which `on_timer` is told.
        clock: The clock that must reach it.
        since: The instant of the key that it is counted from: its latest event time, the processing
            time of its last micro-batch with events, or when its state was created or updated.
        span: How long after that.
    """

    name: str
    clock: Clock
    since: Literal["last_event_time", "last_processing_time", "created", "updated"]
    span: timedelta


def deadlines_of(policy: TimeoutPolicy) -> tuple[Deadline, ...]:
    """Return how a policy counts, a deadline for each of its parts."""
    if isinstance(policy, FirstOf):
        return tuple(deadline for part in policy.policies for deadline in deadlines_of(part))
    if isinstance(policy, EventTimeGap):
        return (Deadline("event_time_gap", "event_time", "last_event_time", policy.longest),)
    if isinstance(policy, ProcessingTimeGap):
        return (
            Deadline("processing_time_gap", "processing_time", "last_processing_time", policy.gap),
        )
    if isinstance(policy, TimeToLive):
        since: Literal["created", "updated"] = (
            "created" if policy.since == "creation" else "updated"
        )
        return (Deadline("time_to_live", policy.clock, since, policy.span),)
    return ()
