"""Which rows go to which sink, and by which columns a row of a table replaces another."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import PurePosixPath
from typing import Any, Final, TypeAlias

import attrs
from pyspark.sql import types as T

from sessionkit.errors import SinkError, SpecError, with_hint
from sessionkit.spark._columns import OF_REJECTED
from sessionkit.spark._output_rules import OutputMode
from sessionkit.spark.sinks.native import Files, ForeachBatch, Kafka
from sessionkit.spark.sinks.tables import Delta, Postgres
from sessionkit.spark.sinks.writers import Once
from sessionkit.spec.columns import REJECTED_COLUMNS, REVISION_COLUMNS, SESSION_COLUMNS

BatchSink: TypeAlias = Postgres | Delta | Files | Kafka | Once | ForeachBatch
BATCH_SINKS: Final = (Postgres, Delta, Files, Kafka, Once, ForeachBatch)
KIND: Final = "kind"
RESULTS: Final = ("session", "result")
REST: Final = "rejected"
OWN_PLACE: Final = "give each a place of its own; `rejected` takes all kinds that you don't name"
DEFAULTS: Final = ("spark_catalog", "default")
"""The catalog and the schema of Spark in which a table is whose name has none, by default."""
PUBLIC: Final = "public"
"""The schema of PostgreSQL in which a table is whose name has none, by default."""
SESSION_ID: Final = SESSION_COLUMNS[0]
REVISION, _, SUPERSEDES = REVISION_COLUMNS


@attrs.frozen(kw_only=True)
class Routes:
    """
    A sink for each kind of row, from one run of the stateful operator.

    The frame comes from `sessionize` or `apply_with_state`, with rejected rows. Every row has a
    sink: `rejected` takes those of a kind that no other argument names. A result row has the
    columns of a result and those that you add to the frame, and any other row all columns. No two
    sinks share a table, a folder or a topic.

    Attributes:
        session: Takes the sessions of a `SessionSpec`.
        result: Takes the result rows of a `StatefulSpec`.
        rejected: Takes every other row. None leaves out the rows of kinds that have no sink: they
            are counted all the same.
        event: Takes the events of closed sessions, of a spec with `with_events=True`, in place of
            `rejected`.
        late: Takes the events that were late, in place of `rejected`.
        duplicate: Takes the events that were processed already, in place of `rejected`.
        quarantined: Takes the rows that aren't valid events, in place of `rejected`.
        failed: Takes the events over which a function raised, in place of `rejected`.
        failed_output: Takes what a function failed to return, in place of `rejected`.
    """

    session: BatchSink | None = None
    result: BatchSink | None = None
    rejected: BatchSink | None
    event: BatchSink | None = None
    late: BatchSink | None = None
    duplicate: BatchSink | None = None
    quarantined: BatchSink | None = None
    failed: BatchSink | None = None
    failed_output: BatchSink | None = None

    @property
    def named(self) -> dict[str, BatchSink]:
        """The kinds that have a sink of their own."""
        sinks = attrs.asdict(self, recurse=False)
        return {kind: sink for kind, sink in sinks.items() if sink is not None and kind != REST}


@attrs.frozen
class Route:
    """
    Where some of the rows go.

    Attributes:
        sink: Their sink.
        schema: The columns that it gets.
        of_results: Whether they are result rows.
        kinds: Their kinds, or with `is_rest` those that they are not; None for all rows.
        is_rest: Whether these are the rows of no kind in `kinds`.
    """

    sink: BatchSink
    schema: T.StructType
    of_results: bool = True
    kinds: tuple[str, ...] | None = None
    is_rest: bool = False

    @property
    def name(self) -> str:
        """What tells its rows from those of the query's other routes, in every run."""
        return REST if self.is_rest else ",".join(self.kinds or ("all",))


def routes_of(schema: T.StructType, sink: Any) -> Sequence[Route]:
    """Return where the rows of a frame go."""
    if not isinstance(sink, Routes):
        return [Route(sink, schema, of_results=REST not in _kinds_in(schema))]
    _check(schema, sink)
    return [*_routes(schema, sink)]


def _kinds_in(schema: T.StructType) -> tuple[str, ...]:
    return (REST,) if KIND in schema.names and REJECTED_COLUMNS[0] in schema.names else ()


def _routes(schema: T.StructType, sink: Routes) -> Iterator[Route]:
    for kind, own in sink.named.items():
        columns = _result_columns(schema) if kind in RESULTS else schema
        yield Route(own, columns, kind in RESULTS, (kind,))
    if sink.rejected is not None:
        yield Route(sink.rejected, schema, False, (*sink.named,), is_rest=True)  # noqa: FBT003


def _result_columns(schema: T.StructType) -> T.StructType:
    """Return the columns of a result, and those of the user's own, wherever they are."""
    end = schema.names.index(REJECTED_COLUMNS[0])
    own = [
        field
        for place, field in enumerate(schema.fields)
        if field.name != KIND and (place < end or not _is_of_rejected(field))
    ]
    return T.StructType(own)


def _is_of_rejected(field: T.StructField) -> bool:
    return field.name in REJECTED_COLUMNS or OF_REJECTED in field.metadata


def _check(schema: T.StructType, sink: Routes) -> None:
    if not _kinds_in(schema):
        found = "Routes need rows of several kinds, and the frame has one kind"
        raise SpecError(with_hint(found, "pass with_rejected=True to sessionize"))
    wanted, other = RESULTS if SESSION_COLUMNS[0] in schema.names else RESULTS[::-1]
    if wanted not in sink.named or other in sink.named:
        found = f"the frame has rows of kind `{wanted}`, and Routes have "
        found += "no sink for them" if wanted not in sink.named else f"a sink for `{other}`"
        raise SpecError(with_hint(found, f"write Routes({wanted}=..., rejected=...)"))
    for kind, own in [*sink.named.items(), (REST, sink.rejected)]:
        if own is not None and not isinstance(own, BATCH_SINKS):
            kinds = ", ".join(one.__name__ for one in BATCH_SINKS)
            found = f"`{kind}` of Routes must be a sink that takes micro-batches, found {own!r}"
            raise SpecError(with_hint(found, f"pass one of {kinds}"))
    _check_places({**sink.named, REST: sink.rejected})


def _check_places(sinks: Mapping[str, BatchSink | None]) -> None:
    """Refuse two sinks of one place: the ledger would count the micro-batch for both."""
    for (kind, own), (other, theirs) in combinations(sinks.items(), 2):
        if _meet(own, theirs):
            raise same_place_error(kind, other, own)
        if _lies_in(own, theirs) or _lies_in(theirs, own):
            outer, inner = (theirs, own) if _lies_in(own, theirs) else (own, theirs)
            found = (
                f"`{kind}` and `{other}` of Routes write to {_said(outer)} and, within it, to "
                f"{_said(inner)}: who reads the first would find the rows of both"
            )
            raise SpecError(with_hint(found, OWN_PLACE))


def same_place_error(kind: str, other: str, sink: BatchSink | None) -> SpecError:
    """Return the error for two kinds of rows that go to one place."""
    found = (
        f"`{kind}` and `{other}` of Routes write to {_said(sink)}, which would mix their rows, or "
        "take those of one of them for the whole micro-batch"
    )
    return SpecError(with_hint(found, OWN_PLACE))


def _meet(own: BatchSink | None, theirs: BatchSink | None) -> bool:
    if isinstance(own, Kafka) and isinstance(theirs, Kafka):
        brokers = {*own.servers.split(",")} & {*theirs.servers.split(",")}
        return bool(brokers) and own.topic is not None and own.topic == theirs.topic
    return _place(own) is not None and _place(own) == _place(theirs)


def _lies_in(own: BatchSink | None, theirs: BatchSink | None) -> bool:
    """Return whether the folder of a sink is within that of another."""
    inner, outer = _place(own), _place(theirs)
    if not isinstance(inner, PurePosixPath) or not isinstance(outer, PurePosixPath):
        return False
    return outer in inner.parents


def _place(sink: BatchSink | None) -> object:
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
        case Once():
            return sink.last_batch
        case _:
            return None


def _path(path: str | os.PathLike[str]) -> PurePosixPath:
    text = os.fspath(path)
    local = text.removeprefix("file:")
    return PurePosixPath(os.path.normpath(f"/{local.lstrip('/')}" if local != text else text))


def _said(sink: BatchSink | None) -> str:
    match sink:
        case Files():
            return f"the folder {os.fspath(sink.path)}"
        case Postgres() | Delta():
            return f"the table {sink.table}"
        case Kafka():
            return f"the topic {sink.topic}"
        case _:
            return "the store of `last_batch`"


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
    if mode != "append" and not key:
        found = f"mode {mode!r} writes a row again to change it, and {sink.table} has no key"
        raise SpecError(with_hint(found, "pass key=(...) with the columns of the groups"))


def check_has_columns(table: object, needed: Sequence[str], present: Collection[str]) -> None:
    """Check that a table has a column for each of the rows."""
    missing = [name for name in needed if name not in present]
    if missing:
        found = f"the table {table} has no column `{missing[0]}`; it has {', '.join(present)}"
        raise SpecError(with_hint(found, "add the column, or leave the table to the sink to make"))


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
    said = " and ".join(f"({_named(row)})" for row in rows)
    found = (
        f"two rows of a micro-batch have the same ({', '.join(key)}), by which a row of the table "
        f"{table} replaces another" + (f": {said}" if said else "")
    )
    hint = "pass key=(...) with columns that tell them apart, or key=() to add every row"
    return SinkError(with_hint(found, hint))


def _named(row: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in row.items())
