"""When a session is over: the gap, and the rules that cut the session before."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import attrs
import pyarrow.compute as pc

from sessionkit._arguments import at_least_one, explained, flag, names, names_of
from sessionkit._instants import Duration, duration_of
from sessionkit.errors import SpecError
from sessionkit.timeouts._policies import EventTimeGap, Gap, read_max_gap
from sessionkit.timeouts._rule import Predicate, Rule
from sessionkit.timeouts._rules import (
    ChangesOf,
    GapPassed,
    Idle,
    MaxDuration,
    MaxEvents,
    Midnight,
    OpensWith,
    StartsWith,
    Until,
)

StateGap: TypeAlias = Callable[[Any], timedelta]
"""
A function from the state of an open session to its gap from then on, in event time.

The engine calls it on a worker, with an object of the state class, after the events of an instant
are folded. It returns a positive `timedelta` of at most `gap`. If it raises or returns anything
else, the query stops with a `UserFunctionError`, or under `on_error="reject"` the last of these
events fails.
"""

ClosedBy: TypeAlias = Literal[
    "until", "max_events", "midnight", "gap", "starts_with", "changes_of", "max_duration", "idle"
]
"""
The name of the rule that ended a session: `"gap"`, `"idle"`, or an argument of `SessionRules`.

It's `Session.closed_by`, and the column `closed_by` of the rows. `"idle"` means `close_idle_after`.
"""

CLOSED_BY: Final[tuple[ClosedBy, ...]] = get_args(ClosedBy)
"""
The names of all rules. If several rules fire at an instant, the first counts.

An event exactly at an inclusive maximum duration still belongs to the session, as does an event
exactly at an inclusive gap. So these two rules fire just after their instants.
"""


def _read_length(value: Duration | None) -> timedelta | None:
    return None if value is None else duration_of(value, "max_duration")


def _read_idle(value: Duration | None) -> timedelta | None:
    return None if value is None else duration_of(value, "close_idle_after")


def _predicate(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Check an attribute that takes a condition on an event, or None."""
    is_condition = value is None or isinstance(value, str | pc.Expression)
    if is_condition or (callable(value) and not isinstance(value, type)):
        return
    found = f"`{attribute.name}` takes a condition on an event, found {value!r}"
    hint = f'write {attribute.name}=pc.field("page") == "/logout"'
    if isinstance(value, timedelta):
        hint += ", or max_duration=... for a length of time"
    raise SpecError(found, hint)


@explained()
@attrs.frozen
class SessionRules:
    """
    Say when a session is over: after a gap, or at a rule that ends it before.

    The rule that comes first in event time ends the session. The column `closed_by` has its name,
    such as `until`, or `gap`. Events of one instant have no order, so they always belong to one
    session, unless the spec names a `sequence`. To change a preset: `attrs.evolve(rules, gap="20
    minutes")`.

    Example:
        import pyarrow.compute as pc
        from sessionkit import SessionRules

        rules = SessionRules(
            "30 minutes",
            max_duration="12 hours",
            until=pc.field("page") == "/logout",
            midnight="Europe/Berlin",
        )

    Attributes:
        gap: As for an `EventTimeGap`: a duration, or a function from an event to a `timedelta`.
        max_gap: The longest gap that the function may return.
        state_gap: A function from the state to a `timedelta`, positive and at most `gap`: the gap
            from then on. It's called with the state after all events of an instant. If it raises,
            or returns anything else, the last event of that instant counts as failed; see
            `on_error` of `SessionSpec`.
        gap_inclusive: Whether an event exactly one gap after the last one still belongs to the
            session.
        max_duration: How long a session lasts at most, in event time. An event later than the
            session's start plus this starts a new session.
        max_duration_inclusive: Whether an event exactly at the session's start plus `max_duration`
            still belongs to it.
        max_events: A session ends with this many events. Without a `sequence`, further events at
            the instant of the last one still belong to it.
        until: A session ends with an event that meets this condition, such as a logout or a
            purchase: a pyarrow expression, the name of a bool field, or a function from an event to
            a bool. So are `starts_with`, `opens_with` and `extends`.
        starts_with: An event that meets this starts a new session, such as a login.
        changes_of: A field of the event class, or several. An event starts a new session if its
            value differs from the last value in the session. It does so too if all events before it
            have null there. A null never starts a session.
        midnight: A time zone, such as `"Europe/Berlin"`. Midnight there ends every session, on days
            of 23 and of 25 hours too.
        opens_with: Only events that meet this open a session, such as page views. Any other event
            belongs to the session that is open at its time. If none is open, the event is rejected
            as `outside`, and changes nothing.
        extends: Only events that meet this keep a session open. Any other event, such as a
            heartbeat, joins the session that is open at its time, and leaves its end as it is. It
            joins even if the watermark has reached its time. If no session is open then, the event
            is a session of its own, whose `session_end` is the event's time; or it's late, if the
            watermark has reached its time.
        close_idle_after: Close sessions though no event comes. Once the watermark has stood still
            for this long in processing time, it counts as the processing time less
            `watermark_delay`, as if an event came now. A session that closes by this has `"idle"`
            as `closed_by`, and its later events are late. Spark then runs a micro-batch at every
            trigger, which must be shorter than this, and looks at every bucket in each. Under the
            trigger `availableNow`, such a query never ends. It has no effect on a batch.

    `state_gap`, `max_duration`, `max_events`, `until`, `starts_with` and `changes_of` depend on the
    order of events. So they need `order="event_time"`.

    Raises:
        SpecError: A duration isn't positive, `max_gap` is missing or given without a function,
            `max_events` isn't a whole number from 1, `midnight` isn't the name of a time zone, or a
            condition is none of the three kinds.
    """

    gap: Gap = attrs.field()
    max_gap: timedelta | None = attrs.field(
        default=None, kw_only=True, converter=attrs.converters.optional(read_max_gap)
    )
    state_gap: StateGap | None = attrs.field(default=None, kw_only=True)
    gap_inclusive: bool = attrs.field(default=True, kw_only=True)
    max_duration: timedelta | None = attrs.field(default=None, kw_only=True, converter=_read_length)
    max_duration_inclusive: bool = attrs.field(default=True, kw_only=True, validator=flag)
    max_events: int | None = attrs.field(default=None, kw_only=True, validator=at_least_one)
    # `==` of two expressions makes a third expression instead of comparing them.
    until: Predicate | None = attrs.field(default=None, kw_only=True, eq=repr, validator=_predicate)
    starts_with: Predicate | None = attrs.field(
        default=None, kw_only=True, eq=repr, validator=_predicate
    )
    changes_of: tuple[str, ...] = attrs.field(
        default=(), kw_only=True, converter=names_of, validator=names
    )
    midnight: str | None = attrs.field(default=None, kw_only=True)
    opens_with: Predicate | None = attrs.field(
        default=None, kw_only=True, eq=repr, validator=_predicate
    )
    extends: Predicate | None = attrs.field(
        default=None, kw_only=True, eq=repr, validator=_predicate
    )
    close_idle_after: timedelta | None = attrs.field(
        default=None, kw_only=True, converter=_read_idle
    )

    def __attrs_post_init__(self) -> None:
        policy = EventTimeGap(self.gap, max_gap=self.max_gap, gap_inclusive=self.gap_inclusive)
        object.__setattr__(self, "gap", policy.gap)
        if self.state_gap is not None and callable(self.gap):
            found = "`gap` and `state_gap` are both functions"
            raise SpecError(found, "pass the longest gap as `gap`, a duration")
        if self.max_duration is None and not self.max_duration_inclusive:
            found = "`max_duration_inclusive` has no effect without `max_duration`"
            raise SpecError(found, "leave it out, or pass max_duration=...")
        if self.midnight is not None:
            _check_zone(self.midnight, "midnight")

    @cached_property
    def longest(self) -> timedelta:
        """The maximum gap of an event."""
        return self.max_gap or duration_of(self.gap, "gap")

    @cached_property
    def in_use(self) -> tuple[Rule, ...]:
        """The gap and the rules of all other arguments passed, in the order in which they count."""
        return rules_in_use(self)

    @cached_property
    def ordered(self) -> tuple[tuple[int, Rule], ...]:
        """The rules that see one instant after another, with their positions in `in_use`."""
        rules = enumerate(self.in_use)
        return tuple(pair for pair in rules if pair[1].needs_order or pair[1].limits_openings)

    @cached_property
    def of_openings(self) -> tuple[tuple[int, Rule], ...]:
        """The rules that limit which instants begin a session, with their places in `ordered`."""
        rules = enumerate(rule for _, rule in self.ordered)
        return tuple((place, rule) for place, rule in rules if rule.limits_openings)

    @property
    def predicates(self) -> Mapping[str, Predicate]:
        """The conditions to evaluate for each event, by the names of the arguments."""
        extends = {} if self.extends is None else {"extends": self.extends}
        of_rules = (rule.predicates.items() for rule in self.in_use)
        return dict(chain(*of_rules, extends.items()))

    @property
    def in_order(self) -> tuple[str, ...]:
        """The names of the arguments passed that depend on the order of events."""
        names = [rule.name for rule in self.in_use if rule.needs_order]
        return (*names, *(() if self.state_gap is None else ("state_gap",)))


RULES: Final[tuple[type[Rule], ...]] = (
    Until,
    MaxEvents,
    Midnight,
    GapPassed,
    StartsWith,
    ChangesOf,
    MaxDuration,
    Idle,
)
"""All rules that end sessions, in the order of `CLOSED_BY`."""


def rules_in_use(rules: SessionRules) -> tuple[Rule, ...]:
    by_state = rules.state_gap is not None
    gap = GapPassed(
        longest=rules.longest,
        inclusive=rules.gap_inclusive,
        is_said_by="event" if callable(rules.gap) else "state" if by_state else "spec",
        extended_by_all=rules.extends is None,
    )
    candidates = (
        rules.until is not None and Until(rules.until),
        rules.max_events is not None and MaxEvents(rules.max_events),
        rules.midnight is not None and Midnight(rules.midnight),
        gap,
        rules.starts_with is not None and StartsWith(rules.starts_with),
        bool(rules.changes_of) and ChangesOf(rules.changes_of),
        rules.max_duration is not None
        and MaxDuration(rules.max_duration, rules.max_duration_inclusive),
        rules.close_idle_after is not None and Idle(rules.close_idle_after),
        rules.opens_with is not None and OpensWith(rules.opens_with),
    )
    # At one instant, a rule that fires just after it comes last.
    return tuple(sorted((rule for rule in candidates if rule), key=attrgetter("inclusive")))


def _check_zone(zone: str, name: str) -> None:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        found = f"`{name}` must be the name of a time zone, found {zone!r}"
        hint = f'write {name}="Europe/Berlin"; on a machine without zones, `pip install tzdata`'
        raise SpecError(found, hint) from error
