"""
Which events fail, where a session can't be folded, under `on_error="reject"`.

A failed event leaves no trace: the session is what it would be had the event never come. So each
event is tried on a copy of the state. Without it the session may fall apart in two, where it was
all that held them together; then the part after it begins anew. Time is linear in the events, but
for bridges between stored sessions that fail, each of which starts its part again.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

import attrs

from sessionkit._engine.rows.objects import decode_keys, decode_states
from sessionkit._engine.rows.table import micros
from sessionkit._engine.sessions.fold import FoldError, SessionFold
from sessionkit._engine.sessions.plan import Plan
from sessionkit._functions import name_of
from sessionkit.errors import StateValueError
from sessionkit.session import AnySessionSpec
from sessionkit.state import codec_of
from sessionkit.timeouts import starts_new_session

__all__ = ["failed_events"]


@attrs.frozen(eq=False)
class Interval:
    """
    One part of a session.

    Attributes:
        start: Its start, in microseconds.
        end: Its end, exclusive.
        content: The event, or the state of an open session.
        event: The place of the event among all; None for an open session.
    """

    start: int
    end: int
    content: Any
    event: int | None


Part: TypeAlias = list[Interval]


def failed_events(plan: Plan) -> dict[int, str]:
    """Return the places of the events that fail, each with its reason, in a plan whose folds do."""
    fold, failures = SessionFold.of(plan.spec), dict[int, str]()
    keys = decode_keys(plan.spec, plan.keys_of(plan.active))
    for key, part in zip(keys, _parts(plan), strict=True):
        waiting = [part]
        while waiting:
            waiting += _tried(fold, key, waiting.pop(), failures)
    return failures


def _parts(plan: Plan) -> Iterator[Part]:
    """Yield the intervals of each session that has events, in order."""
    states = decode_states(plan.spec.state, plan.touched)
    starts = [*micros(plan.touched["start"]).tolist(), *plan.events.starts.tolist()]
    ends = [*micros(plan.touched["end"]).tolist(), *plan.events.ends.tolist()]
    contents, opened = [*states, *plan.folded_events()], len(states)
    members = plan.order[plan.unions.spread(plan.active)].tolist()
    first = 0
    for size in plan.unions.sizes[plan.active].tolist():
        yield [
            Interval(starts[n], ends[n], contents[n], n - opened if n >= opened else None)
            for n in members[first : first + size]
        ]
        first += size


def _tried(fold: SessionFold, key: Any, part: Part, failures: dict[int, str]) -> Sequence[Part]:
    """Fold a part event by event, add what fails, and return the parts that are left to be done."""
    opened = [interval for interval in part if interval.event is None]
    try:
        state = fold.merged(key, [deepcopy(one.content) for one in opened]) if opened else None
    except FoldError as error:
        return _without_bridges(fold.spec, part, opened[error.merged or 0], str(error), failures)
    furthest: int | None = None
    for place, interval in enumerate(part):
        if furthest is not None and _is_apart(fold.spec, interval, furthest):
            return _fallen_apart(part, place, opened, failures)
        if interval.event is not None:
            try:
                state = _taken(fold, key, state, interval.content)
            except FoldError as error:
                failures[interval.event] = str(error)
                continue
        furthest = interval.end if furthest is None else max(furthest, interval.end)
    return []


def _is_apart(spec: AnySessionSpec, interval: Interval, furthest: int) -> bool:
    inclusive = spec.timeout.gap_inclusive
    return starts_new_session(interval.start, furthest, gap_inclusive=inclusive)


def _taken(fold: SessionFold, key: Any, state: Any, event: Any) -> Any:
    """Return the state with one more event, which fits its fields; the given one stays as it is."""
    opened = [] if state is None else [deepcopy(state)]
    taken = fold.fold(key, opened, [event])
    misfit = codec_of(fold.spec.state).misfit(taken)
    if misfit is not None:
        raise _left_a_misfit(fold.spec, key, misfit, was_open=bool(opened))
    return taken


def _left_a_misfit(
    spec: AnySessionSpec, key: Any, misfit: StateValueError, *, was_open: bool
) -> FoldError:
    role = "update" if was_open or spec.create is None else "create"
    what = f"`{role}` ({name_of(getattr(spec, role))}), for {key!r}, left a state"
    return FoldError(f"{what} that does not fit: {misfit}")


def _without_bridges(
    spec: AnySessionSpec, part: Part, right: Interval, reason: str, failures: dict[int, str]
) -> Sequence[Part]:
    """Blame the events that lead up to the session on the right, which could not be merged."""
    place = part.index(right)
    for one in part[:place]:
        if one.event is not None and not _is_apart(spec, right, one.end):
            failures[one.event] = reason
    return _remaining(part[:place], failures), part[place:]


def _fallen_apart(
    part: Part, place: int, opened: list[Interval], failures: dict[int, str]
) -> Sequence[Part]:
    """Go on where a failed event no longer holds a part together."""
    if opened and opened[-1].start >= part[place].start:
        # A session on the right was merged into the left too early.
        return _remaining(part[:place], failures), part[place:]
    return (part[place:],)


def _remaining(part: Part, failures: dict[int, str]) -> Part:
    return [one for one in part if one.event not in failures]
