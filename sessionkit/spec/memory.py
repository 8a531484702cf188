"""The memory of a key: values kept after its sessions, for the next one."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic

import attrs

from sessionkit._arguments import carried, explained
from sessionkit._instants import Duration, duration_of, duration_text
from sessionkit.errors import SpecError
from sessionkit.spec.base import set_derived
from sessionkit.spec.options import copied
from sessionkit.spec.signatures import check_function, class_of
from sessionkit.spec.views import Session
from sessionkit.state._fields import fields_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # A memory without `remember` fits a spec with any state.
    S_contra = TypeVar("S_contra", contravariant=True, default=object)
else:
    from typing import TypeVar

    S_contra = TypeVar("S_contra", contravariant=True)


def _read_life(value: Duration) -> timedelta:
    return duration_of(value, "time_to_live")


def _read_lookback(value: Duration | None) -> timedelta | None:
    return None if value is None else duration_of(value, "lookback")


@explained({"time_to_live": 'time_to_live="400 days"'})
@attrs.frozen(kw_only=True)
class Memory(Generic[S_contra]):
    """
    Remember a key after its sessions are over: `memory=Memory(time_to_live="400 days")`.

    Result rows then have, after `last_event_time` and `closed_by`:

    * `session_number`: the number of the session among the sessions of its key, from 1.
    * `previous_session_id`: the session before it; null for the first. OpenTelemetry calls it
      `session.previous_id`.
    * `since_previous`: the event time from when that session was over to the start of this; null
      for the first. A session is over at `session_end`, or when a rule ends it before.
    * the columns that `first` and `last` name.

    `finish` finds the first three in its `Session`, with what `remember` returned for the previous
    session. `create` and `update` don't: the previous session is certain only when a session
    closes. Under `Lateness(allowed=...)`, a late event that begins or changes a session gives
    another revision of the closed sessions after it. An early row doesn't count the open sessions
    before it.

    Attributes:
        time_to_live: How long a key is remembered after its last session is over, in event time. A
            session that begins later counts as the key's first again.
        first: New columns, each with the field of the result that it reads: `{"first_source":
            "source"}`. A column has the first value of the field that isn't null, over the sessions
            of the key up to this one.
        last: New columns, likewise: `{"last_source": "source"}`. A column has the field's value in
            this session or, if that is null, in the latest earlier session where it isn't.
        lookback: For `last`: how long before this session that earlier session may have begun, in
            event time. None for as long as the key is remembered.
        remember: `remember(session, state)`, for a spec with `Functions`. It returns what the next
            session of the key finds in `session.memory`: an object of an attrs class or a
            dataclass, or None. It's called after `finish`, with the same arguments, for each
            session that is over and has given a row. If `finish` or `remember` fails, or no row is
            given, the key keeps what it had.
        remembered: The class of what `remember` returns. By default from its annotation.

    Raises:
        SpecError: A duration isn't positive, `lookback` is longer than `time_to_live` or comes
            without `last`, or `remember` doesn't take a session and a state, or returns nothing.
        SpecError: A field of the class that `remember` returns has a type that can't be stored. The
            message names all such fields.
    """

    time_to_live: timedelta = attrs.field(converter=_read_life)
    first: Mapping[str, str] = attrs.field(
        factory=dict, converter=copied, validator=carried, hash=False
    )
    last: Mapping[str, str] = attrs.field(
        factory=dict, converter=copied, validator=carried, hash=False
    )
    lookback: timedelta | None = attrs.field(default=None, converter=_read_lookback)
    remember: Callable[[Session[Any], S_contra], Any] | None = None
    _remembered: type[Any] | None = attrs.field(
        default=None, alias="remembered", eq=False, repr=False
    )
    remembered: type[Any] | None = attrs.field(init=False)
    must_return: frozenset[str] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.lookback is not None and not self.last:
            found = "`lookback` is for the columns of `last`, and there is none"
            raise SpecError(found, 'write last={"credited": "source"}, or leave it out')
        if self.lookback is not None and self.lookback > self.time_to_live:
            found = "`lookback` is longer than `time_to_live`, after which nothing is remembered"
            raise SpecError(found, f'write time_to_live="{duration_text(self.lookback)}"')
        set_derived(self, remembered=None, must_return=frozenset())
        if self.remember is None:
            return
        signature = check_function(self.remember, "remember", session=Session, state=None)
        places = [signature.returned]
        cls = class_of("remembered", self._remembered, places, "what `remember` returns")
        if not fields_of(cls).fields:
            found = f"{signature.returned} returns {cls.__name__}, which has no fields"
            raise SpecError(found, "give it what the next session should know")
        promised = frozenset({"remember"} if signature.always_returns else ())
        set_derived(self, remembered=cls, must_return=promised)
