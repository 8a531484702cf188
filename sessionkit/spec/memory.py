"""What is remembered of a key after its sessions."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic

import attrs

from sessionkit._arguments import columns, explained
from sessionkit._instants import Duration, duration_of, duration_text
from sessionkit.errors import SpecError
from sessionkit.spec.base import set_derived
from sessionkit.spec.options import copied
from sessionkit.spec.signatures import check_function, check_returns, class_of
from sessionkit.spec.views import Session
from sessionkit.state._fields import fields_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # One that remembers nothing takes the state of any spec.
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
    What is remembered of a key after its sessions: `memory=Memory(time_to_live="400 days")`.

    Result rows then have, after `last_event_time` and `closed_by`:

    * `session_number`: the session's number among those of its key, from 1.
    * `previous_session_id`: the session before it; null for the first. OpenTelemetry calls it
      `session.previous_id`.
    * `since_previous`: the event time from when that was over to the start of this one; null for
      the first.
    * the columns of `first` and `last`.

    `finish` finds the first three in its `Session`, with what `remember` returned for the session
    before. `create` and `update` don't: only when a session closes is it certain what came before.
    Under `Lateness(allowed=...)`, a late event that begins or changes a session gives another
    revision of the closed ones after it. An early row doesn't count the open sessions before it.

    Attributes:
        time_to_live: How long after a session a key is remembered, in event time. A session that
            begins later is the first again.
        first: New columns, and the fields of the result whose first value each holds: of the
            earliest session that has one, up to this one. A null isn't a value.
        last: New columns, and the fields whose last value each holds: this session's own if it has
            one, otherwise that of the latest session that has. The last source that isn't direct,
            say, where the field is null in a direct session.
        lookback: How long before the start of this session the one with the value of `last` may
            have begun, at most; None for as long as the key is remembered.
        remember: `remember(session, state)`, for sessions folded by functions: what the next
            session of the key finds in `session.memory`, an object of an attrs class or a
            dataclass, or None. Called after `finish`, with the same arguments, for each session
            that is over and has given a row. Where `finish` or `remember` fails, or gives no row,
            the key keeps what was remembered before.
        remembered: The class of what `remember` returns. Left out, its annotation says it.

    Raises:
        SpecError: A value can't work.
        SpecError: The class has fields that cannot be stored; all are named.
    """

    time_to_live: timedelta = attrs.field(converter=_read_life)
    first: Mapping[str, str] = attrs.field(factory=dict, converter=copied, validator=columns)
    last: Mapping[str, str] = attrs.field(factory=dict, converter=copied, validator=columns)
    lookback: timedelta | None = attrs.field(default=None, converter=_read_lookback)
    remember: Callable[[Session[Any], S_contra], Any] | None = None
    _remembered: type[Any] | None = attrs.field(
        default=None, alias="remembered", eq=False, repr=False
    )
    remembered: type[Any] | None = attrs.field(init=False)
    must_return: frozenset[str] = attrs.field(init=False, eq=False, repr=False)
    """`remember`, if it's annotated to return an object, and never None."""

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
        check_returns(signature)
        said = [signature.returned]
        cls = class_of("remembered", self._remembered, said, "what `remember` returns")
        if not fields_of(cls).fields:
            found = f"{signature.returned} returns {cls.__name__}, which has no fields"
            raise SpecError(found, "give it what the next session should know")
        promised = frozenset({"remember"} if signature.always_returns else ())
        set_derived(self, remembered=cls, must_return=promised)
