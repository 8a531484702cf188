"""Checks of what users pass to a call together with a spec."""

from datetime import datetime
from typing import Any, Final

from sessionkit._instants import FIRST_INSTANT_US, LAST_INSTANT_US, micros_of
from sessionkit.errors import SpecError
from sessionkit.spec.base import AnySpec, Spec
from sessionkit.spec.session import SessionSpec
from sessionkit.spec.stateful import StatefulSpec

MADE: Final[dict[type[Any], tuple[str, str]]] = {
    Spec: ("a SessionSpec or a StatefulSpec", "SessionSpec.of({name}"),
    SessionSpec: ("a SessionSpec", "SessionSpec.of({name}"),
    StatefulSpec: ("a StatefulSpec", "StatefulSpec(process=..."),
}
"""What a call may ask for, and how a user makes one."""


def check_kind(
    spec: object, cls: type[Any] = Spec, other: str = "", *, argument: str = "spec"
) -> None:
    """Check that `spec` is a `cls`; the hint names `other`, which takes the other kind."""
    if isinstance(spec, cls):
        return
    expected, made = MADE[cls]
    is_class = isinstance(spec, type)
    name = spec.__name__ if isinstance(spec, type) else "Visit"
    shown = f"the class {name}" if is_class else type(spec).__name__
    hint = f'write {made.format(name=name)}, keys={{"user_id": str}}, ...)'
    if is_class:
        hint = f"make a spec with it: {hint}"
    elif isinstance(spec, Spec):
        hint = f"call {other}, which takes a {shown}"
    elif hasattr(type(spec), "isStreaming"):
        hint = "pass the frame first, and the spec after it"
    raise SpecError(f"`{argument}` must be {expected}, found {shown}", hint)


def check_until(spec: AnySpec, until: object) -> None:
    """Check that a batch can end at `until`."""
    if spec.event_time is None:
        found = "`until` is an event time, and the spec has no `event_time`"
        raise SpecError(found, "leave it out")
    if not isinstance(until, datetime) or until.utcoffset() is None:
        found = f"`until` must be a datetime with a time zone, found {until!r}"
        raise SpecError(found, "write datetime(..., tzinfo=UTC)")
    if not FIRST_INSTANT_US <= micros_of(until) <= LAST_INSTANT_US:
        found = f"`until` is outside the years 1 to 9999 in UTC: {until!r}"
        raise SpecError(found, "write it in UTC: datetime(..., tzinfo=UTC)")
