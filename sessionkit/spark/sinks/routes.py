"""Which rows go to which sink, and by which columns a row of a table replaces another."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import PurePosixPath
from typing import Any, Final, get_args

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionkit.errors import SinkError, SpecError, with_hint
from sessionkit.spark._columns import OF_REJECTED, quoted
from sessionkit.spark._output_rules import OutputMode
from sessionkit.spark.sinks.values import (
    REST,
    Delta,
    ExactlyOnce,
    Files,
    Kafka,
    Postgres,
    Routes,
    RouteSink,
    described,
)
from sessionkit.spec.shared import REJECTED_COLUMNS, REVISION_COLUMNS, SESSION_COLUMNS

NESTED: Final = (T.StructType, T.ArrayType, T.MapType)
KIND: Final = "kind"
RESULTS: Final = ("session", "result")
ALL: Final = "all"
OWN_PLACE: Final = "give each a place of its own; `rejected` takes all kinds that you don't name"
DEFAULTS: Final = ("spark_catalog", "default")
"""Where Spark looks for a table without a catalog and a schema, by default."""
PUBLIC: Final = "public"
"""Where PostgreSQL looks for a table without a schema, by default."""
SESSION_ID: Final = SESSION_COLUMNS[0]
REVISION, _, SUPERSEDES = REVISION_COLUMNS


@attrs.frozen
class Route:
    """
    Where some of the rows go.

    Attributes:
        of_results: Whether they are result rows.
        name: What tells them from the rows of the query's other routes, in every run: their kind.
        others: With the name `rejected`, the kinds that have another route.
    """

    sink: RouteSink
    schema: T.StructType
    of_results: bool = True
    name: str = ALL
    others: tuple[str, ...] = ()

    def rows(self, frame: DataFrame) -> DataFrame:
        if self.name == REST:
            frame = frame.where(~F.col(KIND).isin(*self.others))
        elif self.name != ALL:
            frame = frame.where(F.col(KIND) == self.name)
        return frame.select(*map(quoted, self.schema.names))


def routes_of(schema: T.StructType, sink: Any) -> Sequence[Route]:
    has_kinds = KIND in schema.names and REJECTED_COLUMNS[0] in schema.names
    if not isinstance(sink, Routes):
        return [Route(sink, schema, of_results=not has_kinds)]
    if not has_kinds:
        found = "Routes need rows of several kinds, and the frame has one kind"
        hint = "pass with_rejected=True to sessionize"
        for name in {KIND, REJECTED_COLUMNS[0]} & {*schema.names}:
            found = f"Routes need the columns `kind` and `reason`, and the frame has `{name}` alone"
            hint = "keep both of them; each sink gets the columns of its rows"
        raise SpecError(with_hint(found, hint))
    _check(schema, sink)
    routes = [
        Route(own, _result_columns(schema) if kind in RESULTS else schema, kind in RESULTS, kind)
        for kind, own in sink.named.items()
    ]
    if sink.rejected is not None:
        others = (*sink.named,)
        routes.append(Route(sink.rejected, schema, of_results=False, name=REST, others=others))
    return routes


def _result_columns(schema: T.StructType) -> T.StructType:
    """Return the columns of a result, and those of the user's own, wherever they are."""
    end = schema.names.index(REJECTED_COLUMNS[0])
    of_rejected = {
        field.name
        for field in schema.fields[end:]
        if field.name in REJECTED_COLUMNS or OF_REJECTED in field.metadata
    }
    return T.StructType([one for one in schema.fields if one.name not in {KIND, *of_rejected}])


def _check(schema: T.StructType, sink: Routes) -> None:
    wanted, other = RESULTS if SESSION_ID in schema.names else RESULTS[::-1]
    if wanted not in sink.named or other in sink.named:
        found = f"the frame has rows of kind `{wanted}`, and Routes have "
        found += "no sink for them" if wanted not in sink.named else f"a sink for `{other}`"
        raise SpecError(with_hint(found, f"write Routes({wanted}=..., rejected=...)"))
    sinks = sink.named if sink.rejected is None else {**sink.named, REST: sink.rejected}
    for kind, own in sinks.items():
        if not isinstance(own, RouteSink):
            kinds = ", ".join(one.__name__ for one in get_args(RouteSink))
            found = f"`{kind}` of Routes must be a sink that takes micro-batches, found {own!r}"
            raise SpecError(with_hint(found, f"pass one of {kinds}"))
    for one, another in combinations(sinks.items(), 2):
        _check_apart(*one, *another)


def _check_apart(kind: str, own: RouteSink, other: str, theirs: RouteSink) -> None:
    """Refuse two sinks of one place: the ledger would count the micro-batch for both."""
    if _meet(own, theirs):
        raise same_place_error(kind, other, own)
    for inner, outer in ((own, theirs), (theirs, own)):
        folder, around = _place(inner), _place(outer)
        if isinstance(folder, PurePosixPath) and around in folder.parents:
            found = (
                f"`{kind}` and `{other}` of Routes write to {described(outer)} and, within it, to "
                f"{described(inner)}: who reads the first would find the rows of both"
            )
            raise SpecError(with_hint(found, OWN_PLACE))


def same_place_error(kind: str, other: str, sink: RouteSink) -> SpecError:
    found = (
        f"`{kind}` and `{other}` of Routes write to {described(sink)}, which would mix their rows, "
        "or take those of one of them for the whole micro-batch"
    )
    return SpecError(with_hint(found, OWN_PLACE))


def _meet(own: RouteSink, theirs: RouteSink) -> bool:
    if isinstance(own, Kafka) and isinstance(theirs, Kafka):
        brokers = {*own.servers.split(",")} & {*theirs.servers.split(",")}
        return bool(brokers) and own.topic is not None and own.topic == theirs.topic
    return _place(own) is not None and _place(own) == _place(theirs)


def _place(sink: RouteSink) -> object:
    """Return the identity of a place; None where it isn't known."""
    match sink:
        case Files():
            return _path(sink.path)
        case Delta() if sink.is_path:
            return _path(sink.table)
        case Delta():
            names = os.fspath(sink.table).replace("`", "").lower().split(".")
            return tuple([*DEFAULTS, *names][-len(DEFAULTS) - 1 :])
        case Postgres():
            return (sink.dsn, (PUBLIC, *sink.names)[-2:])
        case ExactlyOnce():
            return sink.last_batch
        case _:
            return None


def _path(path: str | os.PathLike[str]) -> PurePosixPath:
    text = os.fspath(path)
    local = text.removeprefix("file:")
    return PurePosixPath(os.path.normpath(f"/{local.lstrip('/')}" if local != text else text))


# ----------------------------------------------------------------------------------- rows of tables


def key_of(sink: Postgres | Delta, route: Route) -> tuple[str, ...]:
    """Return the columns by which a row replaces an earlier one; none where rows are added."""
    if sink.key is not None:
        return sink.key
    return (SESSION_ID,) if route.of_results and SESSION_ID in route.schema.names else ()


def check_key(sink: Postgres | Delta, route: Route, mode: OutputMode) -> None:
    """Check that the rows have a key, if they need one, and its columns."""
    names, key = route.schema.names, key_of(sink, route)
    missing = [name for name in key if name not in names]
    if missing:
        found = f"`key` of the table {sink.table} names `{missing[0]}`"
        raise SpecError(with_hint(found, f"name some of {', '.join(names)}"))
    if sink.key is None and route.of_results and REVISION in names and not key:
        found = f"the rows for the table {sink.table} are revisions of sessions, and lack "
        found += f"`{SESSION_ID}`, by which one replaces another; they have {', '.join(names)}"
        raise SpecError(with_hint(found, f"keep `{SESSION_ID}`, or pass key=() to add every row"))
    if mode != "append" and not key:
        found = f"mode {mode!r} writes a row again to change it, and {sink.table} has no key"
        raise SpecError(with_hint(found, "pass key=(...) with the columns of the groups"))


def check_has_columns(table: object, needed: Sequence[str], present: Collection[str]) -> None:
    missing = [name for name in needed if name not in present]
    if missing:
        found = f"the table {table} has no column `{missing[0]}`; it has {', '.join(present)}"
        raise SpecError(with_hint(found, "add the column, or leave the table to the sink to make"))


def unfit_error(table: object, field: T.StructField, there: str, made: str) -> SpecError:
    """Return the error for a column that can't take values of a field."""
    kind = field.dataType.simpleString()
    found = f"the column `{field.name}` of the table {table} is {there}, and the rows have {kind}"
    hint = f"make it {made}, or leave the table to the sink to make"
    return SpecError(with_hint(f"{found} for it", hint))


def refuses_duplicate_ids(sink: Postgres | Delta, route: Route, mode: OutputMode) -> bool:
    """
    Return whether a second session with the id of another one is an error.

    So it is for sessions, by their `session_id`. A key that you name for rows that may be something
    else, and other modes, say that a row replaces an earlier one.
    """
    if mode != "append" or not route.of_results or SESSION_ID not in key_of(sink, route):
        return False
    return sink.key is None or {*SESSION_COLUMNS} <= {*route.schema.names}


def duplicate_id_error(
    table: object, present: Mapping[str, object], new: Mapping[str, object]
) -> SinkError:
    """Return the error for a row of a session whose id a row of the table has already."""
    found = (
        f"the table {table} has a row of a session ({_named(present)}), and another micro-batch "
        f"has a row of the same session_id that doesn't supersede it ({_named(new)})"
    )
    hint = (
        "if another query wrote the first one, empty the table, or write to another one; if the "
        "table or the checkpoint is an older copy, restore both as they were at one time"
    )
    return SinkError(with_hint(found, hint))


def same_key_error(
    table: object, key: Sequence[str], rows: Iterable[Mapping[str, object]] = ()
) -> SinkError:
    """Return the error for two rows of a micro-batch of which neither comes before the other."""
    shown = " and ".join(f"({_named(row)})" for row in rows)
    found = (
        f"two rows of a micro-batch have the same ({', '.join(key)}), by which a row of the table "
        f"{table} replaces another" + (f": {shown}" if shown else "")
    )
    hint = "pass key=(...) with columns that tell them apart, or key=() to add every row"
    return SinkError(with_hint(found, hint))


def _named(row: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in row.items())
