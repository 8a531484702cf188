"""Which rows go to which sink, and by which columns a row of a table replaces another."""

import os
from collections.abc import Sequence
from itertools import combinations
from pathlib import PurePath, PurePosixPath
from typing import Any, Final, get_args

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionkit.errors import SpecError, with_hint
from sessionkit.spark._columns import OF_REJECTED, quoted
from sessionkit.spark.sinks.protocol import TableSink
from sessionkit.spark.sinks.values import (
    REST,
    ExactlyOnce,
    Files,
    Kafka,
    Routes,
    RouteSink,
    described,
)
from sessionkit.spec.columns import REJECTED_COLUMNS, SESSION_COLUMNS

NESTED: Final = (T.StructType, T.ArrayType, T.MapType)
KIND: Final = "kind"
RESULTS: Final = ("session", "result")
ALL: Final = "all"
OWN_PLACE: Final = "give each a place of its own; `rejected` takes all kinds that you don't name"
SESSION_ID: Final = SESSION_COLUMNS[0]


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
        case TableSink(place=PurePath() as folder):
            return _path(folder)
        case TableSink():
            return sink.place
        case ExactlyOnce():
            return sink.last_batch
        case _:
            return None


def _path(path: str | os.PathLike[str]) -> PurePosixPath:
    text = os.fspath(path)
    local = text.removeprefix("file:")
    return PurePosixPath(os.path.normpath(f"/{local.lstrip('/')}" if local != text else text))
