"""The spec of a session."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar, TypeAlias, TypeVar, Unpack, overload

import attrs

from sessionkit._arguments import column_name, explained, explains_with, group, spelled_out
from sessionkit._instants import Duration
from sessionkit._typing import Record
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate
from sessionkit.aggregates._events import Condition
from sessionkit.spec import checks
from sessionkit.spec.base import (
    EXAMPLES,
    E,
    R,
    S,
    Spec,
    check_names_with_rejected,
    check_shared,
    read_timeout,
    read_watermark_delay,
    set_derived,
)
from sessionkit.spec.columns import (
    CLOSED_BY_FIELD,
    CLOSED_BY_OR_OPEN,
    MEMORY_FIELDS,
    NUMBER_COLUMN,
    REJECTED_COLUMNS,
    REVISION_FIELDS,
    SESSION_FIELDS,
    Named,
)
from sessionkit.spec.logic import Aggregates, Events, Finish, Functions, Logic, classes_of
from sessionkit.spec.memory import Memory
from sessionkit.spec.methods import (
    AggregateSettings,
    Finishing,
    InOrder,
    InOrderFinishing,
    Merging,
    Settings,
    SettingsInOrder,
    functions_of,
)
from sessionkit.spec.options import Every, Results
from sessionkit.spec.signatures import check_function
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import Field, OptionalType, inner_type
from sessionkit.timeouts._policies import Clock, EventTimeGap
from sessionkit.timeouts._session_rules import SessionRules

# For the constructors: type checkers bind the type variables of the class too early.
E1 = TypeVar("E1", bound=Record)
S1 = TypeVar("S1", bound=Record)
R1 = TypeVar("R1", bound=Record)


@explained(EXAMPLES)
@attrs.frozen(kw_only=True, repr=False)
class SessionSpec(Spec[E, S, R]):
    """
    Define sessions: which events are read, what is computed of them, and when a session is over.

    The same spec runs on a stream, on a batch and in a test. All times are event time. Usually, one
    of three methods makes it: `SessionSpec.of(Visit, ...)` from the methods of a state class,
    `SessionSpec.aggregate(View, {...}, ...)` from aggregates, and `SessionSpec.per_event(View,
    ...)` from an event class alone. Its attributes `event`, `state` and `result` are the classes of
    the `logic`.

    Example:
        from sessionkit import Aggregates, Lateness, SessionSpec
        from sessionkit import aggregates as agg

        # View: as in the example of SessionSpec.of
        pages = SessionSpec(
            logic=Aggregates(View, {"pages": agg.count(), "landing": agg.first("page")}),
            keys={"user": str},
            event_time="ts",
            gap="30 minutes",
            watermark_delay="10 minutes",
            lateness=Lateness(allowed="1 hour"),
        )

    Attributes:
        keys: The key columns and their types: str, int, bool, bytes, date, datetime, time,
            Decimal, UUID, or a Literal.
        event_time: The timestamp column that says when an event happened.
        logic: What is computed of a session's events: `Functions(...)`, `Aggregates(...)` or
            `Events(...)`.
        gap: How long a session stays open without events, such as `"30 minutes"`, in event time.
            Pass either this or `timeout`. The spec keeps it as its `timeout`, so for a copy with
            another gap, write `attrs.evolve(spec, timeout="20 minutes")`.
        timeout: In place of `gap`: an `EventTimeGap`, or `SessionRules` that also cut sessions
            before the gap is over. Under `SessionRules`, result rows have a column `closed_by`,
            after `last_event_time`.
        watermark_delay: How far the watermark is behind the latest event time of earlier
            micro-batches: how late an event may come and still be counted for certain.
        order: `"arrival"` takes events as they come, in time order within a micro-batch.
            `"event_time"` keeps an event until the watermark has reached its time, so that all
            events of a key are taken in time order; functions without `merge` need this, and so do
            some `SessionRules`.
        sequence: An int field of the event class that puts events of one instant in order: an
            offset, a line number, an event number. Without it, rules never part events of one
            instant, and they are taken in the order of their content. Where an aggregate stores a
            value with its time, it stores the number too.
        on_error: `"raise"` stops the query if one of your functions raises. `"reject"` counts the
            events of that call as failed, and continues without them.
        lateness: When an event is late, and how late events are handled.
        results: When sessions give rows, and which.
        inputs: Which rows become events, and how they're identified.
        storage: How state is stored, and how old state is converted.
        memory: What is remembered of a key after its sessions; None for nothing.

    Raises:
        SpecError: Both or neither of `gap` and `timeout` are given; two options contradict each
            other, such as a rule that needs `order="event_time"` under another order; or a key and
            a field of the result have one name.
        SpecError: A field of a class has a type that can't be stored. The message names all such
            fields.
    """

    event_time: str = attrs.field(validator=column_name)
    logic: Logic[E, S, R]
    timeout: EventTimeGap | SessionRules = attrs.field(default=None, converter=read_timeout)
    _gap: Duration | None = attrs.field(default=None, alias="gap", eq=False, repr=False)
    watermark_delay: timedelta = attrs.field(converter=read_watermark_delay)
    sequence: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(column_name)
    )
    results: Results = attrs.field(default=Results(), validator=group)
    memory: Memory[S] | None = None
    row_kind: ClassVar = "session"

    def __attrs_post_init__(self) -> None:
        logic, memory = self.logic, self.memory
        classes = classes_of(logic, self.event_time, self.keys)
        promised = logic.must_return if isinstance(logic, Functions) else frozenset[str]()
        if isinstance(memory, Memory):
            promised |= memory.must_return
        timeout = checks.one_timeout(self._gap, self.timeout)
        set_derived(self, timeout=timeout, _gap=None, must_return=promised, **classes)
        self._check()
        check_shared(self)
        if self.results.with_events:
            check_names_with_rejected(self)

    def _check(self) -> None:
        logic, order, rules = self.logic, self.order, self.rules
        in_order = isinstance(logic, Functions) and logic.merge is None
        in_order |= rules is not None and bool(rules.in_order)
        checks.check_lateness(self.lateness, order, in_order=in_order)
        if self.sequence is not None:
            checks.check_sequence(self.event, self.sequence)
        if isinstance(logic, Functions):
            checks.check_functions(logic, self.keys, order, self.lateness)
        else:
            # In event-time order, the earliest copy of a duplicate counts, and no session opens
            # before an event that was outside any session.
            is_needed = in_order or self.inputs.drop_duplicates_for is not None
            is_needed |= rules is not None and bool(rules.ordered)
            is_held = order == "event_time" and not is_needed
            checks.check_without_functions(logic, self.results, self.storage, is_held=is_held)
        if callable(self.timeout.gap):
            check_function(self.timeout.gap, "gap", event=self.event)
        if rules is not None:
            checks.check_session_rules(rules, logic, order, self.lateness)
        if self.memory is not None:
            checks.check_memory(self.memory, logic, self.keys, self.result)
        if self.revises:
            checks.check_revisions(logic, self.lateness, self.results, order, in_order=in_order)
        if self.results.carries_watermark:
            checks.check_carries_watermark(self.results, self.lateness, self.storage, rules)

    @cached_property
    def functions(self) -> Functions[E, S, R]:
        """The `logic`, where it is `Functions`; a TypeError otherwise."""
        if not isinstance(self.logic, Functions):
            msg = "a spec of aggregates or of events has no functions"
            raise TypeError(msg)
        return self.logic

    @cached_property
    def finish(self) -> Finish[S, R] | None:
        """The function that makes the row of a session; None where the state is the row."""
        return self.logic.finish if isinstance(self.logic, Functions) else None

    @cached_property
    def bound(self) -> tuple[BoundAggregate, ...]:
        """The aggregates; none where the `logic` has none."""
        bound = self.logic.bound if isinstance(self.logic, Aggregates) else ()
        name = self.sequence
        return bound if name is None else tuple(field.in_sequence(name) for field in bound)

    @cached_property
    def conditions(self) -> Mapping[str, Condition]:
        """The conditions of the aggregates, by their text."""
        conditions = (condition for field in self.bound for condition in field.conditions)
        return {repr(condition): condition for condition in conditions}

    @cached_property
    def own_fields(self) -> tuple[Field, ...]:
        """The columns that sessionkit adds to a result row, after the key columns."""
        closed_by = CLOSED_BY_FIELD if self.early is None else CLOSED_BY_OR_OPEN
        ruled = () if self.rules is None else (closed_by,)
        revised = REVISION_FIELDS if self.revises else ()
        return (*SESSION_FIELDS, *ruled, *self.memory_fields, *revised)

    @cached_property
    def memory_fields(self) -> tuple[Field, ...]:
        """The result columns with the memory of the key."""
        if self.memory is None:
            return ()
        types = {field.name: inner_type(field.type) for field in codec_of(self.result).type.fields}
        carried = {**self.memory.first, **self.memory.last}
        values = (
            Field(name, OptionalType(types[source]), name) for name, source in carried.items()
        )
        return (*MEMORY_FIELDS, *values)

    @cached_property
    def early(self) -> Every | None:
        """How often an open session gives a row; None for never."""
        emit = self.results.emit
        return emit if isinstance(emit, Every) else None if emit == "on_close" else Every(events=1)

    @cached_property
    def mergeable(self) -> timedelta | None:
        """How long after its close a session can still be merged; None for no time."""
        return self.lateness.allowed or self.lateness.reopen_within

    @cached_property
    def revises(self) -> bool:
        """Whether a session may give several rows."""
        return self.early is not None or self.mergeable is not None

    @property
    def output_event_time(self) -> str | None:
        return "session_end" if self.results.carries_watermark else None

    @cached_property
    def rejected_columns(self) -> tuple[str, ...]:
        names = [*REJECTED_COLUMNS]
        if isinstance(self.logic, Events) and self.event_time == "event_time":
            names.remove("event_time")
        return (*names, NUMBER_COLUMN) if self.results.with_events else tuple(names)

    @property
    def time_of_rejected(self) -> str:
        is_of_row = "event_time" not in self.rejected_columns
        return "event_time" if is_of_row else super().time_of_rejected

    @property
    def named_by_spec(self) -> tuple[Named, ...]:
        of_memory = {field.name: Named(field.name, "`memory`") for field in self.memory_fields}
        if self.memory is not None:
            for name in (*self.memory.first, *self.memory.last):
                of_memory[name] = Named.of_code(name, f"the column `{name}` of `memory`")
        return tuple(of_memory.get(column.name, column) for column in super().named_by_spec)

    @property
    def named_by_result(self) -> tuple[Named, ...]:
        match self.logic:
            case Aggregates(bound=bound):
                names = (field.name for field in bound)
                return tuple(Named.of_code(name, f"the aggregate `{name}`") for name in names)
            case Events():
                first, *fields = codec_of(self.result).type.fields
                columns = ((field.name, f"the column `{field.name}`") for field in fields)
                place = "wherever the spec has it"
                of_event = (Named.of_frame(*column, place) for column in columns)
                return (Named(first.name, "one of sessionkit's"), *of_event)
        return super().named_by_result

    @cached_property
    def rules(self) -> SessionRules | None:
        """The rules that can cut a session; None for the gap alone."""
        return self.timeout if isinstance(self.timeout, SessionRules) else None

    @cached_property
    def clock(self) -> Clock:
        """The clock of Spark's timeouts: processing time if something is due by it."""
        if self.close_idle_after is not None:
            return "processing_time"
        return "event_time" if self.early is None else self.early.clock

    @overload
    @classmethod
    def of(
        cls, state: Finishing[S1, E1, R1], /, **settings: Unpack[Settings[E1, S1]]
    ) -> "SessionSpec[E1, S1, R1]": ...
    @overload
    @classmethod
    def of(
        cls, state: Merging[S1, E1], /, **settings: Unpack[Settings[E1, S1]]
    ) -> "SessionSpec[E1, S1, S1]": ...
    @overload
    @classmethod
    def of(
        cls, state: InOrderFinishing[S1, E1, R1], /, **settings: Unpack[SettingsInOrder[E1, S1]]
    ) -> "SessionSpec[E1, S1, R1]": ...
    @overload
    @classmethod
    def of(
        cls, state: InOrder[S1, E1], /, **settings: Unpack[SettingsInOrder[E1, S1]]
    ) -> "SessionSpec[E1, S1, S1]": ...
    @classmethod
    @explains_with(state="Visit")
    def of(
        cls,
        state: Any,
        /,
        *,
        create: Callable[..., Any] | None = None,
        update: Callable[..., Any] | None = None,
        merge: Callable[..., Any] | None = None,
        finish: Callable[..., Any] | None = None,
        event: type[Any] | None = None,
        result: type[Any] | None = None,
        **settings: Any,
    ) -> "SessionSpec[Any, Any, Any]":
        """
        Make a spec whose functions are methods of the state class.

        They are `update(self, event)`, `merge(self, other)`, `finish(self, session)` and, as a
        class method, `create(cls, key, event)`. All but `update` may be left out as in `Functions`;
        `create` and `update` may take `time` too. See `SessionSpec` for the other arguments and the
        errors.

        Example:
            import attrs
            from sessionkit import SessionSpec

            @attrs.frozen
            class View:  # the columns to read
                page: str

            @attrs.define
            class Visit:  # the state of a session, and its result row
                pages: int = 0

                def update(self, view: View) -> None:
                    self.pages += 1

            visits = SessionSpec.of(
                Visit, keys={"user": str}, event_time="ts", gap="30 minutes",
                watermark_delay="10 minutes", order="event_time",
            )

        Args:
            state: The state class: an attrs class, without a base class or decorator of
                sessionkit.
            create, update, merge, finish: Functions in place of the methods.
            event, result: The attrs classes of an event and of a row. By default from the
                annotations.
        """
        functions = functions_of(state, create=create, update=update, merge=merge, finish=finish)
        logic = Functions(**functions, event=event, state=state, result=result)
        return SessionSpec(logic=logic, **settings)

    @overload
    @classmethod
    def aggregate(
        cls,
        event: type[E1],
        aggregates: Mapping[str, Aggregate],
        /,
        *,
        result: type[R1],
        **settings: Unpack[AggregateSettings],
    ) -> "SessionSpec[E1, R1, R1]": ...
    @overload
    @classmethod
    def aggregate(
        cls,
        event: type[E1],
        aggregates: Mapping[str, Aggregate],
        /,
        **settings: Unpack[AggregateSettings],
    ) -> "SessionSpec[E1, Any, Any]": ...
    @classmethod
    @explains_with(event="View", aggregates='{"pages": agg.count()}')
    def aggregate(
        cls,
        event: Any,
        aggregates: Mapping[str, Aggregate],
        /,
        *,
        result: Any = None,
        **settings: Any,
    ) -> "SessionSpec[Any, Any, Any]":
        """
        Make a spec from aggregates instead of functions: no Python runs for an event.

        Aggregates have the same result in any order. So `order="event_time"` is refused, unless
        `SessionRules` need it or have `opens_with`, or `drop_duplicates_for` is given. See
        `SessionSpec` for the other arguments and the errors.

        Example:
            import pyarrow.compute as pc
            from sessionkit import SessionSpec
            from sessionkit import aggregates as agg

            # View: as in the example of SessionSpec.of
            pages = SessionSpec.aggregate(
                View,
                {"pages": agg.count(), "bought": agg.any(pc.field("page") == "/thanks")},
                keys={"user": str}, event_time="ts", gap="30 minutes", watermark_delay="10 minutes",
            )

        Args:
            event, aggregates, result: As in `Aggregates`.
        """
        return SessionSpec(logic=Aggregates(event, aggregates, result=result), **settings)

    @classmethod
    @explains_with(event="View")
    def per_event(
        cls, event: type[E1], /, **settings: Unpack[AggregateSettings]
    ) -> "SessionSpec[E1, Any, Any]":
        """
        Make a spec that returns each event with its session's id and its number in the session.

        Rows come in time order. So `order="event_time"` is refused, unless `SessionRules` need it
        or have `opens_with`, or `drop_duplicates_for` is given. See `SessionSpec` for the other
        arguments and the errors.

        Args:
            event: As in `Events`.
        """
        return SessionSpec(logic=Events(event), **settings)


AnySessionSpec: TypeAlias = SessionSpec[Any, Any, Any]
"""A `SessionSpec` of any event, state and result class, for annotations."""

for _name in ("of", "aggregate", "per_event"):
    spelled_out(vars(SessionSpec)[_name].__func__, SessionSpec, but="logic")
