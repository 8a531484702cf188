"""Route rows to sinks, and write whole micro-batches, each exactly once."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import combinations, dropwhile, takewhile
from pathlib import PurePath, PurePosixPath
from typing import Any, Final, get_args

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionkit._arguments import quoted
from sessionkit.errors import HINT, SinkError, SpecError
from sessionkit.spark._causes import first_cause, hint_of
from sessionkit.spark._columns import OF_REJECTED, ROW_KIND
from sessionkit.spark._logs import query_id_of
from sessionkit.spark._paths import LOCAL_ROOT, folder_of
from sessionkit.spark._tasks import begin_with, known_to_tasks
from sessionkit.spark.sinks import Batch, BatchWriter, Ledger, TableSink
from sessionkit.spark.sinks.runs import plan_of_batch
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

KIND: Final = "kind"
RESULTS: Final = ("session", "result")
ALL: Final = "all"
OWN_PLACE: Final = "give each a place of its own; `rejected` takes all kinds that you don't name"
SESSION_ID: Final = SESSION_COLUMNS[0]
OWN_ERROR: Final = re.compile(r"^sessionkit\.errors\.(?=\w+: )", re.MULTILINE)
FRAME: Final = re.compile(r'^ +File ".*", line \d+.*$', re.MULTILINE)
AFTER_MESSAGE: Final = (
    *("\tat ", "Driver stacktrace:", " SQLSTATE: "),
    "The above exception was the direct cause",
)
NONE: Final = -1
PAGE: Final = '"Back up and restore" in docs/how-to/operate.md says how'


@attrs.frozen
class Route:
    """
    A sink, and the rows that go to it.

    Attributes:
        of_results: Whether they are result rows.
        name: Their name within the query, the same in every run: the kind, `rejected` or `all`.
        others: Under the name `rejected`, the kinds that have another route.
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


def routes_of(schema: T.StructType, sink: Any, root: str = LOCAL_ROOT) -> Sequence[Route]:
    """Return the routes of rows to sinks: one route, or one for each kind."""
    names = {field.name for field in schema.fields if field.metadata.get(OF_REJECTED, True)}
    marks = {KIND, REJECTED_COLUMNS[0]}
    has_kinds = marks <= names
    if not isinstance(sink, Routes):
        return [Route(sink, schema, of_results=not has_kinds)]
    if not has_kinds:
        found = "Routes need rows of several kinds, and the frame has one kind"
        hint = "pass with_rejected=True to sessionize"
        for name in marks & names:
            found = f"Routes need the columns `kind` and `reason`, and the frame has `{name}` alone"
            hint = "keep both of them; each sink gets the columns of its rows"
        raise SpecError(found, hint)
    _check(schema, sink, root)
    routes = [
        Route(target, _result_columns(schema) if kind in RESULTS else schema, kind in RESULTS, kind)
        for kind, target in sink.named.items()
    ]
    if sink.rejected is not None:
        others = (*sink.named,)
        routes.append(Route(sink.rejected, schema, of_results=False, name=REST, others=others))
    return routes


def _result_columns(schema: T.StructType) -> T.StructType:
    """Return the columns of a result, and the columns that the user added, wherever they are."""
    end = schema.names.index(REJECTED_COLUMNS[0])
    of_rejected = {
        field.name
        for field in schema.fields[end:]
        if field.metadata.get(OF_REJECTED, field.name in REJECTED_COLUMNS)
    }
    return T.StructType(
        [field for field in schema.fields if field.name not in {KIND, *of_rejected}]
    )


def _check(schema: T.StructType, sink: Routes, root: str) -> None:
    # A key of a StatefulSpec may be called `session_id` too.
    result_kind = schema[KIND].metadata.get(ROW_KIND, RESULTS[SESSION_ID not in schema.names])
    (other,) = {*RESULTS} - {result_kind}
    if result_kind not in sink.named or other in sink.named:
        what = "no sink for them" if result_kind not in sink.named else f"a sink for `{other}`"
        found = f"the frame has rows of kind `{result_kind}`, and Routes have {what}"
        raise SpecError(found, f"write Routes({result_kind}=..., rejected=...)")
    sinks = sink.named if sink.rejected is None else {**sink.named, REST: sink.rejected}
    for kind, target in sinks.items():
        if not isinstance(target, RouteSink):
            kinds = ", ".join(sink_type.__name__ for sink_type in get_args(RouteSink))
            found = f"`{kind}` of Routes must be a sink that takes micro-batches, "
            found += f"found a {type(target).__name__}"
            raise SpecError(found, f"pass one of {kinds}")
    for first, second in combinations(sinks.items(), 2):
        _check_apart(*first, *second, root)


def _check_apart(kind: str, sink: RouteSink, other: str, other_sink: RouteSink, root: str) -> None:
    """Refuse two sinks of one place: the ledger would count the micro-batch for both."""
    if _meet(sink, other_sink, root):
        raise same_place_error(kind, other, sink)
    for inner, outer in ((sink, other_sink), (other_sink, sink)):
        folder, around = place_of(inner, root), place_of(outer, root)
        if isinstance(folder, PurePosixPath) and around in folder.parents:
            found = (
                f"`{kind}` and `{other}` of Routes write to {described(outer)} and, within it, to "
                f"{described(inner)}: who reads the first would find the rows of both"
            )
            raise SpecError(found, OWN_PLACE)


def same_place_error(kind: str, other: str, sink: RouteSink) -> SpecError:
    found = (
        f"`{kind}` and `{other}` of Routes write to {described(sink)}, which would mix their rows, "
        "or take the rows of one of them for the whole micro-batch"
    )
    return SpecError(found, OWN_PLACE)


def _meet(sink: RouteSink, other: RouteSink, root: str) -> bool:
    if isinstance(sink, Kafka) and isinstance(other, Kafka):
        brokers = {*sink.servers.split(",")} & {*other.servers.split(",")}
        return bool(brokers) and sink.topic is not None and sink.topic == other.topic
    place = place_of(sink, root)
    return place is not None and place == place_of(other, root)


def place_of(sink: object, root: str = LOCAL_ROOT) -> object:
    """Return the identity of a sink's place; None if unknown. For `root`, see `folder_of`."""
    match sink:
        case Files():
            return folder_of(sink.path, root)
        case TableSink(place=PurePath() as folder):
            return folder_of(folder, root)
        case TableSink():
            return sink.place
        case ExactlyOnce():
            return sink.last_batch
        case _:
            return None


# ------------------------------------------------------------------------------- the micro-batches


@attrs.frozen
class Start:
    """
    The point from which a query continues.

    Attributes:
        checkpoint: The checkpoint location.
        planned: The last planned micro-batch; -1 for none.
        finished: The last micro-batch that is finished and written to the sinks; -1 for none.
        since: The first micro-batch for a sink that is added to the query later.
        repartitioned: The last finished micro-batch, which may be a repartition by Spark's
            checkpoint manager; no sink gets those.
    """

    checkpoint: str
    planned: int
    finished: int
    since: int = 0
    repartitioned: int = NONE

    def check(self, ledger: Ledger) -> None:
        """
        Check that a place and the checkpoint are of one moment.

        The place may have one planned micro-batch more: its run ended between the sink and the
        checkpoint, and Spark repeats it with the same rows.
        """
        if ledger.has_from(self.planned + 1):
            last = "none" if self.planned == NONE else self.planned
            found = (
                f"{ledger.place} has micro-batches that the checkpoint {self.checkpoint} hasn't "
                f"planned yet, whose last one is {last}: the checkpoint is older, or of another "
                "query, and rows of micro-batches whose number is there would be left out"
            )
            raise SpecError(found, f"{ledger.rewind(self.finished)}; {PAGE}")
        if self.finished == NONE or ledger.has_from(self.finished):
            return
        lacks = (
            f"{ledger.place} doesn't have micro-batch {self.finished}, which the checkpoint "
            f"{self.checkpoint} has finished, "
        )
        if ledger.has_from(0):
            found = (
                f"{lacks}and has earlier ones: it is older than the checkpoint, and the rows "
                "between would be missing"
            )
            raise SpecError(found, f"restore both from copies of one moment; {PAGE}")
        if self.finished >= self.since or not ledger.may_join:
            found = (
                f"{lacks}nor any other of its query: the query wrote elsewhere, or the rows are "
                "lost"
            )
            hint = "pass the place that the query wrote to"
            if ledger.may_join:
                hint += f"; if this one is new to the query, pass sink_since={self.finished + 1}"
            raise SpecError(found, hint)


@attrs.frozen
class Part:
    """A route, and the writer of its rows."""

    route: Route
    writer: BatchWriter

    def of(self, batch: Batch) -> Batch:
        return attrs.evolve(batch, frame=self.route.rows(batch.frame))


def check_places(
    frame: DataFrame, parts: Iterable[Part], query_id: str | None, start: Start
) -> None:
    """Check that each place can take its rows, and has the micro-batches of the checkpoint."""
    routes: dict[object, Route] = {}
    for part in parts:
        ledger = part.writer.ledger(part.route.rows(frame), query_id)
        if ledger is None:
            continue
        first = routes.setdefault(ledger.identity, part.route)
        if ledger.identity is not None and first is not part.route:
            raise same_place_error(first.name, part.route.name, part.route.sink)
        start.check(ledger)


@attrs.define
class WriteBatches:
    """
    The `foreachBatch` function for sinks that take whole micro-batches.

    Spark keeps the state of a micro-batch only if an action has run over all of its rows. So a
    micro-batch that every sink has already still runs, and one for several sinks is persisted.

    Attributes:
        start: The point from which the query continues, if the first micro-batch must check it.
        query_id: The id of the query; None before the first micro-batch.
    """

    checkpoint: str
    run_id: str
    parts: Sequence[Part]
    start: Start | None = None
    query_id: str | None = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        try:
            self._write(frame, number)
        except Exception as error:
            reason = reason_of(error)
            begin_with(SinkError(reason, None if HINT in reason else hint_of(reason)), error)
            raise

    def _write(self, frame: DataFrame, number: int) -> None:
        if self.query_id is None:
            self.query_id = query_id_of(frame.sparkSession, self.checkpoint) or ""
            if self.start is not None:
                check_places(frame, self.parts, self.query_id, self.start)
        plan = cache(partial(plan_of_batch, frame.sparkSession, self.checkpoint, number))
        batch = Batch(frame, number, self.query_id, self.run_id, plan)
        with known_to_tasks(frame.sparkSession, self.query_id, number):
            self._write_to_all(batch)

    def _write_to_all(self, batch: Batch) -> None:
        frame = batch.frame
        pending = [part for part in self.parts if not part.writer.is_written(part.of(batch))]
        if not pending:
            drain(frame)
        elif len(pending) == 1 and pending[0].writer.runs_all:
            _write(pending, batch)
        else:
            frame.persist()
            try:
                if not pending[0].writer.runs_all:
                    drain(frame)
                _write(pending, batch)
            finally:
                frame.unpersist()


@attrs.define
class CallFunction:
    """The `foreachBatch` function that calls a user's function on Connect, and tags its tasks."""

    checkpoint: str
    function: Callable[[DataFrame, int], None]
    query_id: str | None = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        spark = frame.sparkSession
        self.query_id = self.query_id or query_id_of(spark, self.checkpoint)
        with known_to_tasks(spark, self.query_id, number):
            self.function(frame, number)


def _write(parts: Sequence[Part], batch: Batch) -> None:
    for part in parts:
        part.writer.write(part.of(batch))


def drain(frame: DataFrame) -> None:
    """Run a micro-batch without writing a row, so that Spark keeps its state."""
    frame.write.format("noop").mode("overwrite").save()


def reason_of(error: Exception) -> str:
    """Return the message of an error; for an error of Spark or Java, that of its first cause."""
    text = str(error)
    if isinstance(error, PySparkException):
        raised, frames = OWN_ERROR.search(text), [*FRAME.finditer(text)]
        if raised or frames:
            lines = text[raised.end() if raised else frames[-1].end() :].splitlines()
            message = dropwhile(lambda line: not line or line.startswith(" "), lines)
            return "\n".join(
                takewhile(lambda line: not line.startswith(AFTER_MESSAGE), message)
            ).strip()
    return first_cause(error)
