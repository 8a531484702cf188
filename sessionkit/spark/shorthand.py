"""Find the sessions of a frame in one call, with classes and types from the frame's schema."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
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
from sessionkit.aggregates._events import fields_of_condition, hint_for_name
from sessionkit.aggregates._of_spec import check_aggregate
from sessionkit.errors import SchemaError, SpecError
from sessionkit.spark._columns import (
    ANY_FRAME,
    check_key_and_time,
    near,
    no_frame_yet,
)
from sessionkit.spark.jobs.run import sessionize
from sessionkit.spec.base import OnError
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
        with_rejected: Whether to return rejected rows too.
        observation: The observation that receives the counts of a batch.
    """

    frame: DataFrame
    keys: dict[str, Any]
    settings: dict[str, Any]
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
        of_spec = {*self.keys, self.settings["event_time"]}
        columns = [column for column in self.frame.schema.fields if column.name not in of_spec]
        event = _class("Event", columns)
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
        class has the columns that the aggregates read, all of them Optional.

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
        read = dict[str, None]()
        for value in aggregates.values():
            # The spec refuses anything else, and says why.
            for condition in value.read_by() if isinstance(value, Kind) else ():
                read |= dict.fromkeys(fields_of_condition(condition, self._type_of))
        event = _class("Event", [self.frame.schema[name] for name in read])
        return SessionSpec.aggregate(event, aggregates, keys=self.keys, **self.settings)

    def _type_of(self, name: str) -> pa.DataType:
        if name not in self.frame.columns:
            found = f"the aggregates read `{name}`; the frame has {', '.join(self.frame.columns)}"
            hint = hint_for_name(name, self.frame.columns) or near(name, self.frame.columns)
            raise SchemaError(found, hint)
        return field_type(annotation_of_column(self.frame.schema[name].dataType, name), name).arrow


@explains
def sessions(
    frame: DataFrame,
    *,
    keys: str | Sequence[str],
    event_time: str,
    gap: Duration | None = None,
    watermark_delay: Duration | None = None,
    timeout: EventTimeGap | SessionRules | None = None,
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

    The types come from the frame's columns. The result's `agg` and `events` return a DataFrame, for
    a stream and for a batch; `start_query` starts a stream. Its `spec` returns the spec underneath.

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
        timeout: In place of `gap`. It and the arguments up to `memory` are as for `SessionSpec`.
        on_error: What to do with a session whose sum doesn't fit its type.
        lateness: When an event is late, and what to do with it.
        results: When sessions return rows, and which.
        inputs: Which rows become events.
        storage: How state is stored.
        memory: What to remember of a key after its sessions.
        with_rejected: Whether to return rows that are in no session too, each with the reason, such
            as a missing key or time; see `sessionize`. Otherwise they're left out, and only a task
            that finds no event at all logs why, on its executor.
        observation: For a batch: receives the counts once an action has run, for `reconcile`.

    Raises:
        SchemaError: `frame` isn't a DataFrame of Spark, or lacks one of these columns, or the event
            time isn't a timestamp.
        SpecError: A stream has no `watermark_delay`; or other arguments can't work.
    """
    names = columns_named("keys", keys, "user")
    check_column("event_time", event_time, "ts")
    test = f"{ANY_FRAME}; a test passes the spec to SessionDriver"
    check_key_and_time(frame, event_time, names, test)
    if frame.isStreaming and watermark_delay is None:
        found = "a stream needs `watermark_delay`: without a watermark no session is ever over"
        raise SpecError(found, 'say how late an event may come, such as "10 minutes"')
    settings = {
        "event_time": event_time,
        "gap": gap,
        "watermark_delay": "0 seconds" if watermark_delay is None else watermark_delay,
        "timeout": timeout,
        "on_error": on_error,
        "lateness": lateness,
        "results": results,
        "inputs": inputs,
        "storage": storage,
        "memory": memory,
    }
    types = {key: annotation_of_column(frame.schema[key].dataType, key) for key in names}
    return Sessions(frame, types, settings, with_rejected, observation)


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


def _class(name: str, columns: Iterable[T.StructField], path: str = "") -> type[Any]:
    """Return a class with an Optional field for each column: few columns are non-nullable."""
    fields = {}
    for column in columns:
        hint = "rename it, with letters, digits and underscores, or select the columns without it"
        check_field(column.name, f"the column `{path}{column.name}`: ", hint)
        kind = annotation_of_column(column.dataType, path + column.name) | None
        fields[column.name] = attrs.field(type=kind, alias=column.name)
    return attrs.make_class(name, fields, frozen=True)
