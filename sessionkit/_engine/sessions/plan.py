"""
The plan of a micro-batch: which sessions and events belong together, for all keys at once.

An event is an interval: from its time to its time + gap. An open session is an interval too: from
its start to its end. Sort the intervals of a key by their start; one that begins no later than the
furthest end so far belongs to the same session (`starts_new_session` holds the operator). So a
session is a connected union of intervals, and can't depend on the order in which events arrive. One
rule covers three cases:

    no open session in the union      a new session:        create, then update
    one                               it goes on, its start may move back:  update
    several                           events bridge them:   merge from the left, then update
"""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import (
    Mask,
    Numbers,
    instants,
    lists_of,
    micros,
    numbers_in,
    running_maximum,
    whole,
)
from sessionkit._engine.boundaries import is_over, starts_new_session
from sessionkit._engine.rows.ids import salt_of
from sessionkit._engine.rows.objects import decode_keys, encode_states
from sessionkit._engine.rows.order import in_total_order, key_numbers
from sessionkit._engine.rows.tables import EXISTS, LAST_EVENT, SALT, SideOutput, has_state
from sessionkit._instants import BEGINNING_US
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts._rules import GapPassed
from sessionkit.timeouts._session_rules import RULES, SessionRules

Scalar = TypeVar("Scalar", bound=np.generic)


@attrs.frozen
class WindowedEvents:
    """
    The events of a micro-batch with their windows, all in microseconds.

    They're rows, not objects: the plan depends on times alone.
    """

    table: pa.Table
    starts: Numbers
    ends: Numbers

    def only(self, chosen: Mask) -> "WindowedEvents":
        if chosen.all():
            return self
        table = self.table.filter(pa.array(chosen))
        return WindowedEvents(table, self.starts[chosen], self.ends[chosen])

    def without(self, numbers: Collection[int]) -> "WindowedEvents":
        left = np.ones(len(self.starts), np.bool_)
        left[list(numbers)] = False
        return self.only(left)

    def keep_open(self, *, gap_inclusive: bool) -> Mask:
        """Mark the events that keep a session open: the windows of others have no length."""
        return self.ends > self.starts + (0 if gap_inclusive else 1)


@attrs.frozen
class Members:
    """
    The events of a micro-batch, at least one, and the open sessions of their keys, as intervals.

    Members are numbered: first the open sessions, then the events. `order` has these numbers by
    (key, start, content); a *place* is a position in it. `keys`, `starts` and `ends` have an entry
    for each number; instants are in microseconds. `rows` are the rows of the open sessions in
    `sessions`, in ascending order.
    """

    spec: AnySessionSpec
    events: WindowedEvents
    sessions: pa.Table
    rows: Numbers
    order: Numbers
    keys: Numbers
    starts: Numbers
    ends: Numbers

    @cached_property
    def touched(self) -> pa.Table:
        """The open sessions, as rows."""
        if len(self.rows) == self.sessions.num_rows:
            return self.sessions
        return self.sessions.take(pa.array(self.rows))

    def without(self, left_out: Mask) -> "Members":
        """Return the members without some of the events, in the same order."""
        if not left_out.any():
            return self
        opened = len(self.rows)
        kept = np.concatenate([np.ones(opened, np.bool_), ~left_out])
        # One open session and the events 1 2 3, without 2: the others have the numbers 0 1 - 2.
        numbers = np.cumsum(kept) - 1
        return Members(
            self.spec,
            self.events.only(kept[opened:]),
            self.sessions,
            self.rows,
            numbers[self.order[kept[self.order]]],
            self.keys[kept],
            self.starts[kept],
            self.ends[kept],
        )


def members_of(spec: AnySessionSpec, sessions: pa.Table, events: WindowedEvents) -> Members:
    """Return events, at least one, and the open sessions of their keys."""
    columns = range(len(spec.keys))
    of_events, of_sessions = map(events.table.column, columns), map(sessions.column, columns)
    # The number of each event's key, and of each session's; -1 for a session without events:
    # events of b, a, b and sessions of a, c give [0, 1, 0] and [1, -1].
    numbers, of_stored = key_numbers(list(of_events), list(of_sessions))
    has_events = of_stored >= 0
    if EXISTS.name in sessions.column_names:
        has_events &= has_state(sessions)
    rows = np.flatnonzero(has_events)
    keys = np.concatenate([of_stored[rows], numbers])
    starts = np.concatenate([micros(sessions["start"])[rows], events.starts])
    ends = np.concatenate([micros(sessions["end"])[rows], events.ends])
    order = in_total_order(keys, starts, events.table, len(rows), spec.sequence)
    return Members(spec, events, sessions, rows, order, keys, starts, ends)


@attrs.frozen
class Repeats:
    """
    Events with the ids of others; each attribute has an entry for each event.

    Attributes:
        mask: Whether its id was processed earlier, or belongs to an event before it.
        ids: Equal for events of one key that have one id.
        is_stored: Whether its id was processed earlier.
    """

    mask: Mask
    ids: Numbers
    is_stored: Mask


@attrs.frozen
class Unions:
    """
    Sessions as unions of intervals, in the order of their keys and starts.

    Attributes:
        first: The place of the first interval of each session in the sorted input.
        sizes: How many intervals each session has, at least one.
        start: The start of each session in microseconds.
        end: The end of each session in microseconds, exclusive.
        closes: When each session is over; its end, unless a rule cuts it before.
        closed_by: The code of the rule that ends each session.
        nth: How many sessions of its key begin at the same instant before each session; None where
            none do, as without a `sequence`.
    """

    first: npt.NDArray[np.intp]
    sizes: npt.NDArray[np.intp]
    start: Numbers
    end: Numbers
    closes: Numbers
    closed_by: npt.NDArray[np.int8]
    nth: Numbers | None = None

    def __len__(self) -> int:
        return len(self.first)

    def reduced(self, ufunc: np.ufunc, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Reduce the values of intervals, in order, to a value for each session."""
        # The sum of [1, 2 | 4], with sessions that begin at [0, 2]: [3, 4].
        folded: npt.NDArray[Any] = ufunc.reduceat(values, self.first)
        return folded

    def spread(self, values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Return, for each interval in order, the value of its session."""
        # Sessions of sizes [2, 1] with values [a, b]: [a, a, b].
        return np.repeat(values, self.sizes)

    @cached_property
    def numbers(self) -> Numbers:
        """The number of the session of each interval, in order."""
        return self.spread(np.arange(len(self)))


def unite(keys: Numbers, starts: Numbers, ends: Numbers, *, gap_inclusive: bool) -> Unions:
    """Join intervals, sorted by (key, start), at least one, into sessions; keys count from 0."""
    # Of one key, with a gap of 30: intervals 0-30, 10-40, 50-80. The furthest ends so far are
    # [30, 40, 80], so the third begins a session: `first` is [0, 2], and `sizes` is [2, 1].
    new_key = keys[1:] != keys[:-1]
    furthest = running_maximum(keys, ends, new_key)
    apart = starts_new_session(starts[1:], furthest[:-1], gap_inclusive=gap_inclusive)
    is_edge = np.ones(len(keys) + 1, np.bool_)
    is_edge[1:-1] = new_key | apart
    edges = np.flatnonzero(is_edge)
    first = edges[:-1]
    end = np.maximum.reduceat(ends, first)
    closed_by = np.full(len(first), GapPassed.code, np.int8)
    return Unions(first, edges[1:] - first, starts[first], end, end, closed_by)


def by_times(rules: SessionRules, members: Members) -> Unions:
    """Join members, at least one, into sessions by the gap, within a key and a day."""
    order, inclusive = members.order, rules.gap_inclusive
    groups, starts, ends = members.keys[order], members.starts[order], members.ends[order]
    if len(rules.in_use) == 1:
        return unite(groups, starts, ends, gap_inclusive=inclusive)
    groups = groups_of(rules, groups, starts)
    unions = unite(groups, starts, ends, gap_inclusive=inclusive)
    closes, closed_by = closings(rules, unions.start, unions.end)
    return attrs.evolve(unions, closes=closes, closed_by=closed_by)


def groups_of(rules: SessionRules, keys: Numbers, starts: Numbers) -> Numbers:
    """Return a number for each interval, in order: equal within a key, and a day if that cuts."""
    # Keys [0, 0, 0, 1] on days [3, 3, 4, 4]: `new` is [no, yes, yes], and the groups [0, 0, 1, 2].
    new = np.diff(keys) != 0
    for rule in rules.in_use:
        if (days := rule.days(starts)) is not None:
            new |= np.diff(days) != 0
    return np.concatenate([[0], np.cumsum(new)])


def closings(
    rules: SessionRules, starts: Numbers, ends: Numbers
) -> tuple[Numbers, npt.NDArray[np.int8]]:
    """Return when sessions close by their times, and the codes of the rules that close them."""
    closes, positions = first_by_times(rules, starts, ends)
    return closes, codes_of(rules)[positions]


def first_by_times(
    rules: SessionRules, starts: Numbers, ends: Numbers
) -> tuple[Numbers, npt.NDArray[np.intp]]:
    """Return when the first rule fires by the times of sessions, and its position in `in_use`."""
    instants_by_rule = [rule.closes(starts, ends) for rule in rules.in_use]
    by_times = [place for place, closes in enumerate(instants_by_rule) if closes is not None]
    fired = np.stack([closes for closes in instants_by_rule if closes is not None])
    # Of equal instants, `argmin` takes the first rule: the one that counts.
    return fired.min(axis=0), np.array(by_times)[fired.argmin(axis=0)]


def codes_of(rules: SessionRules) -> npt.NDArray[np.int8]:
    return np.array([rule.code for rule in rules.in_use], np.int8)


@attrs.frozen
class Cuts:
    """
    What ends the sessions of a spec: its gap, and its rules if it has any.

    `column` is the stored instant at which a session is over.
    """

    rules: SessionRules
    column: str

    def over_at(self, events: WindowedEvents) -> Numbers:
        """Return when a session of each event alone would be over, in microseconds."""
        return (
            events.ends
            if self.column == "end"
            else closings(self.rules, events.starts, events.ends)[0]
        )

    def reasons(self, sessions: pa.Table) -> pa.Array:
        """Return the name of the rule that ends each session."""
        if "closed_by" not in sessions.column_names:
            return pa.repeat(pa.scalar(GapPassed.name), sessions.num_rows)
        return reasons_of(self.rules, whole(sessions["closed_by"]))


def cuts_of(spec: AnySessionSpec) -> Cuts:
    timeout = spec.timeout
    if isinstance(timeout, SessionRules):
        return Cuts(timeout, "closes")
    longest, inclusive = timeout.max_gap, timeout.gap_inclusive
    return Cuts(SessionRules(timeout.gap, max_gap=longest, gap_inclusive=inclusive), "end")


def reasons_of(rules: SessionRules, codes: pa.Array) -> pa.Array:
    """Return the names of rules by their codes, also of rules no longer in use."""
    names = {rule.code: rule.name for rule in RULES}
    names |= {rule.code: rule.name for rule in rules.in_use}
    return pa.array([names.get(code) for code in range(max(names) + 1)], pa.string()).take(codes)


def with_last_event(sessions: pa.Table, gap_us: int) -> pa.Table:
    """Add the time of each session's last event, where it isn't stored."""
    if LAST_EVENT.name in sessions.schema.names:
        return sessions
    # A session stored under a shorter gap than this one may end sooner than a gap after its start.
    starts, ends = micros(sessions["start"]), micros(sessions["end"])
    return sessions.append_column(LAST_EVENT, instants(np.maximum(starts, ends - gap_us)))


@attrs.frozen
class Horizon:
    """
    The bounds by which events are late and sessions forgotten. All in microseconds.

    Attributes:
        late_event_us: By when the window of a late event is over; None where windows aren't judged.
        late_session_us: By when the session that a late event would join is over; None where
            sessions aren't judged.
        forgotten_us: A session that was over by then may have been forgotten.
        lasts_us: How long a session lasts at least.
        salted: The parts of the salt of a session that starts where one may have been forgotten.
    """

    late_event_us: int | None = None
    late_session_us: int | None = None
    forgotten_us: int = BEGINNING_US
    lasts_us: int = 0
    salted: tuple[int, ...] = (0, 0, 0)


@attrs.frozen(slots=False)
class Plan(Members):
    """
    Which sessions and events belong together.

    Attributes:
        unions: The sessions that the members make.
        horizon: What the watermark has passed.
        states: The states that are known already, for each session; None where none is.
        is_event: Which members, in order, are events.
        event_numbers: The numbers of all events among the events, by session, time and content.
        opened: The places of the open sessions.
        joined: The number of the session that each open one joined, in order.
        counts: How many events each session has.
        active: Which sessions have events.
    """

    unions: Unions
    horizon: Horizon
    states: Sequence[Any] | None = None
    is_event: Mask = attrs.field(init=False)
    event_numbers: Numbers = attrs.field(init=False)
    opened: Numbers = attrs.field(init=False)
    joined: Numbers = attrs.field(init=False)
    counts: Numbers = attrs.field(init=False)
    active: Mask = attrs.field(init=False)

    @classmethod
    def of(
        cls, members: Members, unions: Unions, horizon: Horizon, states: Sequence[Any] | None
    ) -> "Plan":
        return cls(
            members.spec,
            members.events,
            members.sessions,
            members.rows,
            members.order,
            members.keys,
            members.starts,
            members.ends,
            unions,
            horizon,
            states,
        )

    def __attrs_post_init__(self) -> None:
        # Of intervals [open, event, event | event], two sessions, the open one is at place 0 and
        # joined session 0, which has two events; session 1 has one.
        is_event = self.order >= len(self.rows)
        opened = np.flatnonzero(~is_event)
        joined = np.searchsorted(self.unions.first, opened, side="right") - 1
        counts = self.unions.sizes - np.bincount(joined, minlength=len(self.unions.first))
        vars(self).update(
            is_event=is_event,
            event_numbers=self.order[is_event] - len(self.rows),
            opened=opened,
            joined=joined,
            counts=counts,
            active=counts > 0,
        )

    def parted(self, closes: str) -> "Plan":
        """
        Return the plan with sessions without events as they're stored, in the column `closes` too.

        Under rules that are new to them they may reach up to each other, but only events join
        sessions.
        """
        unions, chosen = self.unions, ~self.active
        # Sessions of sizes [2, 3], the second one chosen, begin at [0, 2, 3, 4] then.
        first = np.union1d(unions.first, np.flatnonzero(unions.spread(chosen)))
        before = unions.numbers[first]
        kept = chosen[before]
        opened = pa.array(self.order[first[kept]])
        stored, parts = self.touched.take(opened), attrs.asdict(unions, recurse=False)
        parts = {name: None if array is None else array[before] for name, array in parts.items()}
        parts |= {"first": first, "sizes": np.diff(first, append=len(self.order))}
        parts["start"][kept], parts["end"][kept] = micros(stored["start"]), micros(stored["end"])
        parts["closes"][kept] = micros(stored[closes])
        if "closed_by" in stored.column_names:
            parts["closed_by"][kept] = stored["closed_by"].to_numpy()
        return attrs.evolve(self, unions=Unions(**parts))

    @cached_property
    def owners(self) -> Numbers:
        """The number of the session of each interval, by the interval's own number."""
        # With the order [2, 0, 1], and sessions [0, 0, 1] in order: [0, 1, 0] by their numbers.
        owners = np.empty(len(self.order), np.int64)
        owners[self.order] = self.unions.numbers
        return owners

    def of_opened(self, ufunc: np.ufunc, values: Numbers, none: int = 0) -> Numbers:
        """Reduce the values of the open sessions that joined each session to one."""
        # Of three open sessions, the first two joined session 0, and the last one session 2:
        # the sum of [5, 6, 7] is [11, none, 7].
        folded = np.full(len(self.counts), none)
        ufunc.at(folded, self.joined, values[self.order[self.opened]])
        return folded

    def events_of(self, chosen: Mask) -> Numbers:
        """Return the numbers of the events of the chosen sessions, in order."""
        # Sessions with 2 and 1 events, the second one chosen: [False, False, True].
        return self.event_numbers[np.repeat(chosen, self.counts)]

    def opened_of(self, chosen: Mask) -> pa.Table:
        """Return the rows of the open sessions that joined the chosen ones, in order."""
        # Of three open ones, which joined the sessions 0 0 2, session 2 has the last.
        members = self.order[self.opened[chosen[self.joined]]]
        return self.touched.take(pa.array(members))

    def salts_of(self, chosen: Mask) -> Numbers:
        """Return the salts of chosen sessions: from the open session that begins each, or new."""
        first, starts, horizon = self.unions.first[chosen], self.unions.start[chosen], self.horizon
        salts = np.zeros(len(starts), np.int64)
        passed = is_over(starts + horizon.lasts_us, horizon.forgotten_us)
        if passed.any():
            salts[passed] = salt_of(*horizon.salted)
        if self.unions.nth is not None:
            # A session that isn't the first of its instant has a salt of its own.
            pairs = zip(self.unions.nth[chosen].tolist(), salts.tolist(), strict=True)
            salts = np.array([salt_of(nth, salt) if nth else salt for nth, salt in pairs], np.int64)
        # At one start, an open session goes before the events.
        goes_on = ~self.is_event[first]
        salts[goes_on] = numbers_in(self.sessions, SALT.name)[self.rows[self.order[first[goes_on]]]]
        return salts

    def keys_of(self, chosen: Mask) -> pa.Table:
        """Return the keys of the chosen sessions as a table; each session has events."""
        # Sessions with [2, 0, 1] events have their first one at [0, 2, 2] among all.
        first_event = np.cumsum(self.counts) - self.counts
        numbers = self.event_numbers[first_event[chosen]]
        return self.events.table.select(range(len(self.spec.keys))).take(pa.array(numbers))

    def encoded(self, states: list[Any]) -> list[pa.Array]:
        """Encode the states of sessions with events; a `StateValueError` names one that misfits."""

        def key_at(row: int) -> Any:
            return decode_keys(self.spec, self.keys_of(self.active).slice(row, 1))[0]

        return encode_states(self.spec.state, states, key_at)

    def gathered(self, kept: pa.ListArray, arrived: pa.Array) -> tuple[pa.Array, Numbers]:
        """Join the values in lists of open sessions and of events; return their sessions too."""
        of_kept, of_event = np.split(self.owners, [len(kept)])
        owners = np.concatenate([of_kept[pc.list_parent_indices(kept).to_numpy()], of_event])
        return pa.concat_arrays([kept.flatten(), arrived]), owners

    def lists_of(self, name: str, chosen: Mask) -> pa.Array:
        """
        Return what the chosen sessions store of their events, as unordered lists.

            events     each.NAME    what is kept of an event
            sessions   NAME         the list of these
        """
        kept, arrived = whole(self.touched[name]), whole(self.events.table[f"each.{name}"])
        values, owners = self.gathered(kept, arrived)
        # Values of the sessions [0, 1 | 1, 0], kept and then arrived, have the order [0, 3, 1, 2]:
        # session by session, kept ones first.
        order = pa.array(np.argsort(owners, kind="stable"))
        sizes = np.bincount(owners, minlength=len(chosen))
        return lists_of(values.take(order), sizes).filter(pa.array(chosen))


@attrs.frozen
class Folded:
    """
    The fold of a plan: a state for each session with events; or what must be judged before.

    Attributes:
        states: The columns of the states, in the order of their sessions.
        left_out: The numbers of events that the next plan must leave out; then no state counts.
        rejected: The events left out, and why.
        failing: Which sessions fail, and must be folded with care; then no column counts.
        objects: The states of all sessions with events as objects, if some fail.
    """

    states: Sequence[pa.Array] = ()
    left_out: Collection[int] = ()
    rejected: Sequence[SideOutput] = ()
    failing: Mask | None = None
    objects: Sequence[Any] = ()
