"""Find the sessions of a frame in one call, with classes and types from the frame's schema."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import chain
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import types as T

from sessionkit._arguments import check_column, check_field, columns_named, explains
from sessionkit._instants import Duration
from sessionkit.aggregates import Aggregate
from sessionkit.aggregates._aggregate import Kind
from sessionkit.aggregates._events import Condition, fields_of_condition, hint_for_name
from sessionkit.aggregates._of_spec import check_aggregate
from sessionkit.errors import SchemaError, SpecError
from sessionkit.spark._columns import (
    ANY_FRAME,
    check_key_and_time,
    near,
    no_frame_yet,
)
from sessionkit.spark.jobs.run import sessionize
from sessionkit.spec.base import OnError, Order
from sessionkit.spec.memory import Memory
from sessionkit.spec.options import Inputs, Lateness, Results, Storage
from sessionkit.spec.session import AnySessionSpec, SessionSpec
from sessionkit.state import DecimalType
from sessionkit.state._fields import field_type
from sessionkit.state._scalars import SCALARS
from sessionkit.timeouts._policies import EventTimeGap
from sessionkit.timeouts._session_rules import SessionRules

IMPORT: Final = "from sessionkit import aggregates as agg"


@attrs.frozen
class Sessions:
    """
    The sessions of a frame, before you choose their columns; `sessions` returns it.

    Attributes:
        frame: The events: a stream or a batch.
        keys: The key columns and their types, as the frame has them.
        settings: The other arguments of the spec.
        read: The columns that these read of an event.
        with_rejected: Whether to return rejected rows too.
        observation: The observation that receives the counts of a batch.
    """

    frame: DataFrame
    keys: dict[str, Any]
    settings: dict[str, Any]
    read: Sequence[str] = ()
    with_rejected: bool = False
    observation: Observation | None = None

    if not TYPE_CHECKING:  # a type checker reports a missing attribute itself
        __getattr__ = no_frame_yet(
            "`sessions(...)`",
            "write .agg(n=agg.count()) for a row of each session, or .events() for events",
        )

    @explains
    def agg(self, **aggregates: Aggregate) -> DataFrame:
        """
        Return a row for each session: its key, id, start and end, and these aggregates.

        A stream gives a row once the watermark has reached the end of the session; a batch gives
        all. No Python runs for an event.

        Args:
            aggregates: Aggregates of `sessionkit.aggregates`, by the names of their columns.

        Raises:
            SchemaError: An aggregate is of a column that the frame doesn't have, or whose type
                can't be read.
            SpecError: An aggregate doesn't fit its column, or no field can have its name.
        """
        return self._rows(self.spec(**aggregates))

    def events(self) -> DataFrame:
        """
        Return a row for each event: its columns, its session's id, and its position in the session.

        An event is returned once its session is over.

        Raises:
            SchemaError: A column has a type that can't be read; select the others first.
            SpecError: A column has a name that no field can have.
        """
        of_spec = {*self.keys, self.settings["event_time"]}.difference(self.read)
        event = self._event(name for name in self.frame.columns if name not in of_spec)
        return self._rows(SessionSpec.per_event(event, keys=self.keys, **self.settings))

    def _rows(self, spec: AnySessionSpec) -> DataFrame:
        return sessionize(
            self.frame, spec, with_rejected=self.with_rejected, observation=self.observation
        )

    @explains
    def spec(self, **aggregates: Aggregate) -> AnySessionSpec:
        """
        Return the spec of the rows that `agg` gives for the same aggregates.

        Test it with `SessionDriver`, or pass it to `sessionize` for a seed or a clock. Its event
        class has the columns that are read, all of them Optional but the `sequence`.

        Args:
            aggregates: As for `agg`.

        Raises:
            SchemaError: As for `agg`.
            SpecError: As for `agg`.
        """
        if not aggregates:
            found = "`agg` takes the aggregates that a row has, found none"
            raise SpecError(found, "write .agg(events=agg.count())")
        for name, value in aggregates.items():
            must_be = f"`agg`: `{name}` must be an aggregate of sessionkit"
            check_aggregate(value, Aggregate, must_be, f"write .agg({name}=agg.count()); {IMPORT}")
        read = dict.fromkeys(self.read)
        for name, value in aggregates.items():
            # The spec refuses anything else, and says why.
            for condition in value.read_by() if isinstance(value, Kind) else ():
                what = f"the aggregate `{name}`"
                read |= dict.fromkeys(_read_by(what, condition, self.frame))
        _check_memory(self.settings["memory"], aggregates, self.frame.columns)
        return SessionSpec.aggregate(self._event(read), aggregates, keys=self.keys, **self.settings)

    def _event(self, names: Iterable[str]) -> type[Any]:
        columns = [self.frame.schema[name] for name in names]
        return _class("Event", columns, needed=self.settings["sequence"])


@explains
def sessions(
    frame: DataFrame,
    *,
    keys: str | Sequence[str],
    event_time: str,
    gap: Duration | None = None,
    watermark_delay: Duration | None = None,
    timeout: EventTimeGap | SessionRules | None = None,
    order: Order | None = None,
    sequence: str | None = None,
    on_error: OnError = "raise",
    lateness: Lateness = Lateness(),
    results: Results = Results(),
    inputs: Inputs = Inputs(),
    storage: Storage = Storage(),
    memory: Memory | None = None,
    with_rejected: bool = False,
    observation: Observation | None = None,
) -> Sessions:
    """
    Find the sessions of a frame, with aggregates and without a class.

    The types come from the frame's columns. This returns a `Sessions`, whose methods return a
    DataFrame, for a stream and for a batch: `agg(pages=agg.count())` a row for each session with
    these aggregates, and `events()` a row for each event with its session's id and its position.
    Its method `spec(pages=agg.count())` returns the `SessionSpec` of those rows. `start_query`
    starts a stream.

    Example:
        from sessionkit import aggregates as agg
        from sessionkit.spark import sessions

        # views: a DataFrame with the columns user, ts (a timestamp) and page
        visits = sessions(
            views, keys="user", event_time="ts", gap="30 minutes", watermark_delay="10 minutes"
        )
        found = visits.agg(pages=agg.count(), landing=agg.first("page"))
        assert sorted(row.pages for row in found.collect()) == [1, 1, 3]

    Args:
        frame: The events: a stream or a batch. Unused columns never reach Python.
        keys: The key column or columns, such as the user: each key has sessions of its own.
        event_time: The timestamp column that says when an event happened.
        gap: How long a session stays open without events, in event time.
        watermark_delay: How late an event may come, in event time, and still be counted for
            certain. A stream needs it; a batch doesn't, as it has all events.
        timeout: In place of `gap`. It and the arguments up to `memory` are as for `SessionSpec`,
            where the fields of an event are the columns of the frame. A function of an event, such
            as a gap by event, finds all of them, each None where it's null.
        order: The order in which events are taken. By default `"event_time"` where rules of the
            `timeout` depend on it, else `"arrival"`.
        sequence: An integer column that puts events of one instant in order.
        on_error: What happens if a sum doesn't fit its type: `"raise"` stops the query, `"reject"`
            counts the events of that session and micro-batch as failed.
        lateness: When an event is late, and what to do with it.
        results: When sessions return rows, and which.
        inputs: Which rows become events. A copy that `drop_duplicates_for` drops has the same
            `event_id`, or without one, the same values in all columns.
        storage: How state is stored.
        memory: What to remember of a key after its sessions.
        with_rejected: Whether to return rows that are in no session too, each with the reason, such
            as a missing key or time; see `sessionize`. Otherwise they're left out, and only a task
            that finds no event at all logs why, on its executor.
        observation: For a batch: receives the counts once an action has run, for `reconcile`.

    Raises:
        SchemaError: `frame` isn't a DataFrame of Spark, or lacks one of these columns or one that
            another argument reads, or the event time isn't a timestamp.
        SpecError: A stream has no `watermark_delay`, or two arguments contradict each other, as in
            a `SessionSpec`.
    """
    names = columns_named("keys", keys, "user")
    check_column("event_time", event_time, "ts")
    test = f"{ANY_FRAME}; a test passes the spec to SessionDriver"
    check_key_and_time(frame, event_time, names, test)
    if frame.isStreaming and watermark_delay is None:
        found = "a stream needs `watermark_delay`: without a watermark no session is ever over"
        raise SpecError(found, 'say how late an event may come, such as "10 minutes"')
    if sequence is not None:
        check_column("sequence", sequence, "offset")
    if order is None:
        by_time = isinstance(timeout, SessionRules) and timeout.in_order
        order = "event_time" if by_time else "arrival"
    settings = {
        "event_time": event_time,
        "gap": gap,
        "watermark_delay": "0 seconds" if watermark_delay is None else watermark_delay,
        "timeout": timeout,
        "order": order,
        "sequence": sequence,
        "on_error": on_error,
        "lateness": lateness,
        "results": results,
        "inputs": inputs,
        "storage": storage,
        "memory": memory,
    }
    types = {key: annotation_of_column(frame.schema[key].dataType, key) for key in names}
    of_spec = {*names, event_time}
    others = [name for name in frame.columns if name not in of_spec]
    read = dict.fromkeys(others if _reads_all(timeout, inputs) else ())
    for what, condition in _conditions(timeout, inputs, sequence):
        if what != "event_id" or condition not in of_spec:
            read |= dict.fromkeys(_read_by(f"`{what}`", condition, frame))
    return Sessions(frame, types, settings, [*read], with_rejected, observation)


def _reads_all(timeout: object, inputs: object) -> bool:
    """Return whether all of an event is read: by a function, or for an id of its content."""
    predicates = timeout.predicates.values() if isinstance(timeout, SessionRules) else ()
    if callable(getattr(timeout, "gap", None)) or any(map(callable, predicates)):
        return True
    if not isinstance(inputs, Inputs) or inputs.drop_duplicates_for is None:
        return False
    return not inputs.event_id


def _conditions(timeout: object, inputs: object, sequence: str | None) -> Iterator[tuple[str, Any]]:
    """Yield what arguments read of an event, each with the name of its argument."""
    if isinstance(timeout, SessionRules):
        predicates = timeout.predicates.items()
        yield from ((name, one) for name, one in predicates if not callable(one))
        yield from (("changes_of", name) for name in timeout.changes_of)
    if isinstance(inputs, Inputs):
        ids = (name for name in inputs.event_id or () if name not in inputs.passthrough)
        yield from (("event_id", name) for name in ids)
    if sequence is not None:
        yield "sequence", sequence


def _read_by(what: str, condition: Condition, frame: DataFrame) -> list[str]:
    """Return the columns that a condition reads, or an argument by its name."""

    def type_of(name: str) -> pa.DataType:
        if name not in frame.columns:
            found = f"{what} reads `{name}`; the frame has {', '.join(frame.columns)}"
            raise SchemaError(
                found, hint_for_name(name, frame.columns) or near(name, frame.columns)
            )
        return field_type(annotation_of_column(frame.schema[name].dataType, name), name).arrow

    return fields_of_condition(condition, type_of)


def _check_memory(memory: object, aggregates: Collection[str], columns: Collection[str]) -> None:
    """Check that a memory carries columns of the result, not of the frame."""
    carried = [memory.first, memory.last] if isinstance(memory, Memory) else []
    for name in chain(*(rule.values() for rule in carried)):
        if name not in aggregates and name in columns:
            found = f"`memory` names the column `{name}` of the frame; it carries aggregates"
            raise SpecError(found, f'add it to the row: .agg({name}=agg.first("{name}"), ...)')


def annotation_of_column(kind: T.DataType, path: str) -> Any:
    """Return the annotation of a field that is read from a column of this type."""
    match kind:
        case T.DecimalType():
            return Annotated[Decimal, DecimalType(kind.precision, kind.scale)]
        case T.ArrayType():
            return GenericAlias(list, annotation_of_column(kind.elementType, f"{path}[]") | None)
        case T.MapType(keyType=T.StringType()):
            values = annotation_of_column(kind.valueType, f"{path}[]") | None
            return GenericAlias(dict, (str, values))
        case T.StructType():
            return _class("Struct", kind.fields, f"{path}.")
    name = type(kind).__name__.removesuffix("Type")
    for annotation, scalar in SCALARS.items():
        if scalar.facts is not None and name in scalar.facts.columns:
            return annotation
    found = f"the column `{path}` is {kind.simpleString()}, which can't be read"
    raise SchemaError(found, "cast it, or select the columns without it")


def _class(
    name: str, columns: Iterable[T.StructField], path: str = "", *, needed: str | None = None
) -> type[Any]:
    """Return a class with an Optional field for each column but the needed one."""
    fields = {}
    for column in columns:
        hint = "rename it, with letters, digits and underscores, or select the columns without it"
        check_field(column.name, f"the column `{path}{column.name}`: ", hint)
        kind = annotation_of_column(column.dataType, path + column.name)
        kind = kind if column.name == needed else kind | None
        fields[column.name] = attrs.field(type=kind, alias=column.name)
    return attrs.make_class(name, fields, frozen=True)
