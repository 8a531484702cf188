"""What `finish` is given of a session that is over."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic

import attrs

from sessionkit._instants import instant_of
from sessionkit.timeouts import ClosedBy

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")

__all__ = ["Session", "session_of"]


@attrs.frozen(slots=False)
class Session(Generic[K]):
    """
    A session, as `finish` is given it: a closed one, but for early results.

    All times are event time, in UTC.

    Attributes:
        key: The key: a named tuple with the columns of `SessionSpec.keys`. Write a `NamedTuple`
            with the same fields and annotate `session: Session[User]` to have it checked.
        id: A hash of key and start, the same in every run and for every cut into batches.
        start: The time of the first event.
        end: The time of the last event plus the gap, exclusive.
        events: How many events were folded.
        closed_by: The rule that ended it, by its name: `"gap"`, or one of `SessionRules`. While it
            is open, the one that would end it.
        is_final: Whether it's closed. Only under `emit` a session is handed over before that.
        revision: How many rows it has given, this one included.
    """

    key: K
    id: str
    start: datetime
    end: datetime
    events: int
    closed_by: ClosedBy = "gap"
    is_final: bool = True
    revision: int = 1


class _MadeWhenAsked:
    """A time of a session that the engine leaves as microseconds until someone reads it."""

    def __init__(self, name: str) -> None:
        self.name, self.micros = name, f"_{name}_us"

    def __get__(self, session: Any, owner: type[Any]) -> Any:
        """Make the time; from then on it hides this, as it's in the session's own dict."""
        if session is None:
            return self
        own = session.__dict__
        own[self.name] = instant_of(own.pop(self.micros))
        return own[self.name]


for _name in ("start", "end"):
    # Most `finish` read neither, and two datetimes cost more than all the rest of a session.
    setattr(Session, _name, _MadeWhenAsked(_name))
for _name, _default in (("is_final", True), ("revision", 1)):
    # Nor does a session that gives one row need these of its own.
    setattr(Session, _name, _default)


def session_of(  # noqa: PLR0917 (called by `map`, a session at a time)
    key: Any, name: str, start_us: int, end_us: int, events: int, closed_by: ClosedBy
) -> Session[Any]:
    """Return a session whose times are made when they are first read."""
    session: Session[Any] = object.__new__(Session)
    own = session.__dict__
    own["key"] = key
    own["id"] = name
    own["_start_us"] = start_us
    own["_end_us"] = end_us
    own["events"] = events
    own["closed_by"] = closed_by
    return session
