"""What a user writes: the spec of a session, a frozen value that is valid once it exists."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import (
    Any,
    ClassVar,
    Literal,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import attrs

from sessionkit._validators import choice, column_name
from sessionkit.aggregates import Aggregate
from sessionkit.errors import SpecError, with_hint
from sessionkit.spec.aggregates import (
    BoundAggregate,
    aggregated_class,
    bound_aggregates,
    check_event_class,
    check_result,
)
from sessionkit.spec.checks import (
    check_times,
    read_delay,
    read_lateness,
    read_reopening,
    read_repeats,
    read_timeout,
)
from sessionkit.spec.columns import NUMBER_COLUMN, REJECTED_COLUMNS, session_fields
from sessionkit.spec.logic import (
    AggregateRules,
    Finishing,
    InOrder,
    InOrderFinishing,
    Merging,
    Settings,
    SettingsInOrder,
    annotations,
    check_functions,
    check_no_functions,
    check_roles,
    event_row_class,
    functions_of,
    held_class,
    timeout_of,
)
from sessionkit.spec.shared import E, R, S, Spec, check_shared, set_derived, show_shared_arguments
from sessionkit.spec.signatures import takes_time
from sessionkit.spec.views import Session
from sessionkit.state import Field
from sessionkit.timeouts import Clock, EventTimeGap, Every, SessionRules, read_emit
from sessionkit.typing import FinishResult

__all__ = ["AnySessionSpec", "Session", "SessionSpec"]

# Those of `SessionSpec.of`: type checkers bind those of the class before they look at a call.
E1 = TypeVar("E1", bound=attrs.AttrsInstance)
S1 = TypeVar("S1", bound=attrs.AttrsInstance)
R1 = TypeVar("R1", bound=attrs.AttrsInstance)

Create: TypeAlias = Callable[[Any, E], S] | Callable[[Any, E, datetime], S]
Update: TypeAlias = Callable[[S, E], S | None] | Callable[[S, E, datetime], S | None]


@attrs.frozen(kw_only=True)
class SessionSpec(Spec[E, S, R]):
    """
    The definition of a session: what is read, how it is folded, when it is over.

    The same spec runs on a stream, on a batch and in a test. All times are event time.
    `SessionSpec.of(Visit, ...)` reads the functions from the methods of the state class, and
    `SessionSpec.aggregate(View, {...}, ...)` takes aggregates instead of functions.

    Attributes:
        create: `create(key, event) -> state`, for the first event of a session. Left out, the
            session starts with `State()`, and `update` gets the first event too; a default that
            can change must then be an attrs factory.
        update: `update(state, event) -> state`, for each further event. It may change the state
            that it is given, and return that or None. `create` and `update` may take a third
            argument, named `time` or annotated `datetime`: the event's time, in UTC.
        merge: `merge(left, right) -> state`, for two open sessions that an event between them
            bridges; `left` starts first, and may be changed as by `update`. A spec without it must
            say `order="event_time"`, where no event can come between.
        finish: `finish(session, state)` for a session that is over: a result row, several, or
            None. Called once a session, or for each of its rows. Left out, the state is the row.
        aggregates: Instead of all functions: what a session comes to, by the fields of its row. See
            `sessionkit.aggregates`. The row so far is then what `open_sessions` shows as the state.
        per: `"session"`: what `finish` or the aggregates return. `"event"`: instead of all
            functions, each event once, when its session is over: its `number` in the session, from
            1, its time under the name of `event_time`, and its fields. The state holds the events.
            `"both"`: the one and, as rows of kind `event`, the other; see `sessionize_all`.
        timeout: When a session is over: the gap, such as `"30 minutes"` or an `EventTimeGap`; or
            `SessionRules`, with what cuts a session before that. Result rows then have a column
            `closed_by`, after `session_end`.
        drop_duplicates_for: Drop an event whose id was processed: while the session that it's in
            is open, and until the watermark has reached its `session_end` plus this span, also
            where a rule has ended it before. `"0 seconds"` is long enough where a copy has the
            event time of the first, since it's late from then on. What is dropped counts as
            `duplicate`. The id is the one of `event_id`; 16 bytes of state an event. Left out,
            copies are events.
        late_by: Which window must be over for an event to be late. `"event"`: its own, event time +
            gap, as in Spark. `"session"`: that of the session it would join, as in Flink. Of no
            effect with `order="event_time"`, and so `"session"` is refused there.
        emit: When a session gives a row, at the end of a micro-batch: `"on_close"`; or before that
            too, `"on_update"`, `"every 100 events"`, `"every 5 minutes"` of event time or `"every 5
            minutes of processing time"`; see `Every`. Result rows then have `revision`, `is_final`
            and `supersedes`. A batch gives only the last row of each session.
        allowed_lateness: How long after its close a session can still take events: those that are
            late by no more than this, in event time. Each gives another revision. None for no time.
        reopen_within: How long after its close a session goes on with an event that isn't late, as
            in Kafka Streams. None for no time: then such an event begins a new session.
        revisions: What a row has: all events of the session, or with `"discarding"` those since its
            last row alone.

    Raises:
        SpecError: Something cannot work; the message says what to change.
        FieldTypeError: A class has fields that cannot be stored; all are named.
    """

    event_time: str = attrs.field(validator=column_name)
    create: Create[E, S] | None = None
    # None only where there are aggregates: whoever passes functions passes this one.
    update: Update[S, E] = attrs.field(default=cast("Any", None))
    merge: Callable[[S, S], S | None] | None = None
    finish: Callable[[Session[Any], S], FinishResult[R]] | None = None
    aggregates: Mapping[str, Aggregate] | None = None
    per: Literal["session", "event", "both"] = attrs.field(
        default="session", validator=choice("session", "event", "both")
    )
    bound: tuple[BoundAggregate, ...] = attrs.field(init=False, eq=False, repr=False)
    timeout: EventTimeGap | SessionRules = attrs.field(converter=read_timeout)
    watermark_delay: timedelta = attrs.field(converter=read_delay)
    drop_duplicates_for: timedelta | None = attrs.field(default=None, converter=read_repeats)
    late_by: Literal["event", "session"] = attrs.field(
        default="event", validator=choice("event", "session")
    )
    emit: Literal["on_close", "on_update"] | Every = attrs.field(
        default="on_close", converter=read_emit
    )
    allowed_lateness: timedelta | None = attrs.field(default=None, converter=read_lateness)
    reopen_within: timedelta | None = attrs.field(default=None, converter=read_reopening)
    revisions: Literal["accumulating", "discarding"] = attrs.field(
        default="accumulating", validator=choice("accumulating", "discarding")
    )
    layout: Literal["buckets", "pages"] = attrs.field(
        default="buckets", validator=choice("buckets", "pages")
    )
    create_takes_time: bool = attrs.field(init=False, eq=False, repr=False)
    update_takes_time: bool = attrs.field(init=False, eq=False, repr=False)
    row_kind: ClassVar = "session"

    @property
    def own_fields(self) -> tuple[Field, ...]:
        """The columns that sessionkit adds to a result row."""
        return session_fields(self)

    @property
    def early(self) -> Every | None:
        """How often a session gives a row before it closes; None for never."""
        if isinstance(self.emit, Every):
            return self.emit
        return None if self.emit == "on_close" else Every(events=1)

    @property
    def mergeable(self) -> timedelta | None:
        """How long after its close a session can still become part of another; None for no time."""
        return self.allowed_lateness or self.reopen_within

    @property
    def revises(self) -> bool:
        """Whether a session may give several rows."""
        return self.emit != "on_close" or self.mergeable is not None

    @property
    def rejected_columns(self) -> tuple[str, ...]:
        """The columns that rejected rows add to those of result rows."""
        shared = self.event_time if self.per == "event" else None
        names = tuple(name for name in REJECTED_COLUMNS if not name == shared == "event_time")
        return (*names, NUMBER_COLUMN) if self.per == "both" else names

    @property
    def rules(self) -> SessionRules | None:
        """What can end a session beside the gap; None where nothing can."""
        return self.timeout if isinstance(self.timeout, SessionRules) else None

    @property
    def close_idle_after(self) -> timedelta | None:
        """After what time without events sessions close by the processing time; None for never."""
        return None if self.rules is None else self.rules.close_idle_after

    @property
    def clock(self) -> Clock:
        """The clock of Spark's timeouts."""
        if self.close_idle_after is not None:
            return "processing_time"
        return "event_time" if self.early is None else self.early.clock

    @property
    def discards(self) -> bool:
        """Whether a row has the events since the last one alone."""
        return self.revisions == "discarding"

    def __attrs_post_init__(self) -> None:
        """Read what the functions say, and check what the single fields cannot see."""
        if self.per == "event":
            self._set_event_rows()
            return
        if self.aggregates is not None:
            self._set_aggregates(self.aggregates)
            return
        set_derived(self, bound=())
        create_at = self.create is not None and takes_time(self.create)
        set_derived(self, create_takes_time=create_at, update_takes_time=takes_time(self.update))
        check_roles(self, {})
        self._set_class("event", annotations(self, "event"), "in `update`: `event: View`")
        self._set_class("state", annotations(self, "state"), "in `update`: `state: Visit`")
        if self.finish is None and self._result is None:
            set_derived(self, result=self.state)
        else:
            self._set_class("result", annotations(self, "row"), "what `finish` returns")
        check_shared(self)
        check_functions(self, {"event": self.event, "state": self.state, "session": Session})
        check_times(self)

    def _set_aggregates(self, aggregates: Mapping[str, Aggregate]) -> None:
        """Set and check what follows from aggregates: the row is the state, as without `finish`."""
        check_no_functions(self, "aggregates")
        self._set_class("event", (), "")
        bound = bound_aggregates(self.event, aggregates)
        row = self._result or aggregated_class(bound)
        check_result(row, bound)
        self._set_without_functions(bound=bound, state=row, result=row)

    def _set_event_rows(self) -> None:
        """Set and check what follows from a row for each event."""
        check_no_functions(self, 'per="event"')
        self._set_class("event", (), "")
        check_event_class(self.event)
        held = held_class(self.event, self.event_time)
        row = event_row_class(self.event, self.event_time, self.keys)
        if not (self.aggregates is None and self._result is None):
            given = "result" if self.aggregates is None else "aggregates"
            found = f'`per="event"` and `{given}` are both given'
            raise SpecError(with_hint(found, "leave out the one that you do not need"))
        self._set_without_functions(bound=(), state=held, result=row)

    def _set_without_functions(self, **derived: Any) -> None:
        set_derived(self, **derived, create_takes_time=False, update_takes_time=False)
        check_shared(self)
        check_times(self)

    @overload
    @classmethod
    def of(
        cls,
        state: Finishing[S1, E1, R1],
        /,
        *,
        event: type[E1] | None = None,
        **settings: Unpack[Settings],
    ) -> "SessionSpec[E1, S1, R1]": ...
    @overload
    @classmethod
    def of(
        cls,
        state: Merging[S1, E1],
        /,
        *,
        event: type[E1] | None = None,
        **settings: Unpack[Settings],
    ) -> "SessionSpec[E1, S1, S1]": ...
    @overload
    @classmethod
    def of(
        cls,
        state: InOrderFinishing[S1, E1, R1],
        /,
        *,
        event: type[E1] | None = None,
        **settings: Unpack[SettingsInOrder],
    ) -> "SessionSpec[E1, S1, R1]": ...
    @overload
    @classmethod
    def of(
        cls,
        state: InOrder[S1, E1],
        /,
        *,
        event: type[E1] | None = None,
        **settings: Unpack[SettingsInOrder],
    ) -> "SessionSpec[E1, S1, S1]": ...
    @classmethod
    def of(cls, state: Any, /, **settings: Any) -> "SessionSpec[Any, Any, Any]":
        """
        Make a spec whose functions are methods of the state class.

        They are `update(self, event)`, `merge(self, other)`, `finish(self, session)` and, as a
        class method, `create(cls, key, event)`. All but `update` may be left out as in
        `SessionSpec`; `create` and `update` may take `time` too.

        Args:
            state: The state class: an attrs class. It needs no base class and no decorator of
                sessionkit's.
            event: The attrs class of an event, where the annotations don't say it.
            settings: What `SessionSpec` takes, which wins over the methods; and `gap="30 minutes"`
                for `timeout`.

        Raises:
            SpecError: Something cannot work; the message says what to change.
            FieldTypeError: A class has fields that cannot be stored; all are named.
        """
        functions = {**functions_of(state, settings), **settings}
        if "update" not in functions:
            found = f"`{state.__name__}` has no method `update`"
            hint = "write `def update(self, event: View) -> None: ...` in it"
            raise SpecError(with_hint(found, hint))
        return SessionSpec(state=state, **timeout_of(functions))

    @overload
    @classmethod
    def aggregate(
        cls,
        event: type[E1],
        aggregates: Mapping[str, Aggregate],
        /,
        *,
        result: type[R1],
        **rules: Unpack[AggregateRules],
    ) -> "SessionSpec[E1, R1, R1]": ...
    @overload
    @classmethod
    def aggregate(
        cls,
        event: type[E1],
        aggregates: Mapping[str, Aggregate],
        /,
        **rules: Unpack[AggregateRules],
    ) -> "SessionSpec[E1, Any, Any]": ...
    @classmethod
    def aggregate(
        cls, event: Any, aggregates: Any, /, *, result: Any = None, **rules: Any
    ) -> "SessionSpec[Any, Any, Any]":
        """
        Make a spec from aggregates instead of functions: no Python runs for an event.

        Args:
            event: The attrs class of an event, without validators and converters.
            aggregates: The aggregates of `sessionkit.aggregates`, by the fields of the result row.
            result: An attrs class with these fields, for typed rows. Left out, one is made.
            rules: What `SessionSpec` takes besides functions and classes; `gap="30 minutes"` for
                `timeout`. Aggregates come to the same in any order, so `order` is for
                `SessionRules` that need it, and for `drop_duplicates_for`.

        Raises:
            SpecError: Something cannot work; the message says what to change.
            FieldTypeError: A class has fields that cannot be stored; all are named.
        """
        return cls(event=event, aggregates=aggregates, result=result, **timeout_of(rules))

    @classmethod
    def per_event(
        cls, event: type[E1], /, **rules: Unpack[AggregateRules]
    ) -> "SessionSpec[E1, Any, Any]":
        """
        Make a spec with a row for each event: its session's id, and its number within the session.

        Args:
            event: The attrs class of an event, without validators and converters.
            rules: What `SessionSpec` takes besides functions and classes; `gap="30 minutes"` for
                `timeout`. Rows come in time order, so `order` is for `SessionRules` that need it,
                and for `drop_duplicates_for`.

        Raises:
            SpecError: Something cannot work; the message says what to change.
            FieldTypeError: A class has fields that cannot be stored; all are named.
        """
        settings: dict[str, Any] = timeout_of(rules)
        return SessionSpec(event=event, per="event", **settings)


show_shared_arguments(SessionSpec)
AnySessionSpec: TypeAlias = SessionSpec[Any, Any, Any]
