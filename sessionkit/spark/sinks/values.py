"""The sinks of `start_query`, as values."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, TypeAlias

import attrs
from attrs.converters import optional
from pyspark.sql import DataFrame

from sessionkit._arguments import explained
from sessionkit._instants import duration
from sessionkit.errors import SpecError, with_hint

REST: Final = "rejected"
LEDGER: Final = "sessionkit_batches"
"""The table with the last micro-batch of each table of its schema."""
STAGING: Final = "sessionkit_staging_"
"""What the name of a staging table begins with."""
LONGEST_NAME: Final = 63
PART: Final = r'"(?:[^"]|"")+"|[^".]+'
NAME: Final = re.compile(rf"(?:({PART})\.)?({PART})")
URI: Final = re.compile(r"postgres(?:ql)?://([^?]*)")


def _names(names: Iterable[str] | str) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _retry_for(value: object) -> timedelta:
    return duration(value, "retry_for", zero_allowed=True)


def _is_format(_: Any, __: "attrs.Attribute[str]", value: object) -> None:
    if not isinstance(value, str) or not value or "/" in value:
        found = f"`format` must be the name of a format, found {value!r}"
        raise SpecError(with_hint(found, 'it comes first: Files("parquet", "/data/visits")'))


@explained()
@attrs.frozen
class Files:
    """
    A folder to which every micro-batch adds files, each row exactly once.

    Example:
        from pyspark.sql import functions as F
        from sessionkit.spark import Files, sessionize, start_query

        # stream and visits: as in the example of start_query
        query = start_query(
            sessionize(stream, visits).withColumn("day", F.to_date("session_start")),
            sink=Files("parquet", "/data/visits", partition_by="day"),
            trigger="1 minute",
            checkpoint="/checkpoints/visits",
        )

    Attributes:
        format: The format: `parquet`, `orc`, `json`, `csv` or another that Spark knows.
        path: The folder.
        partition_by: The columns whose values name the subfolders of the files.

    Raises:
        SpecError: The format isn't the name of one.
    """

    format: str = attrs.field(validator=_is_format)
    path: str | os.PathLike[str]
    partition_by: tuple[str, ...] = attrs.field(default=(), converter=_names)


@explained()
@attrs.frozen
class Kafka:
    """
    A Kafka topic. A micro-batch that runs again writes its rows again.

    Rows that have a `session_id` or an `event_id` become JSON, with that id as the key: a consumer
    knows by it what comes again. A frame with a column `value` is sent as it is; it may have `key`,
    `topic`, `partition` and `headers`.

    Attributes:
        servers: The brokers, as `host:port,host:port`.
        topic: The topic of every row; None if the frame has a column `topic`.
        options: More options, under Spark's names, such as `kafka.security.protocol`.
    """

    servers: str
    topic: str | None = None
    options: Mapping[str, str] = attrs.field(factory=dict, repr=False)


@explained()
@attrs.frozen
class ForeachBatch:
    """
    A function on the driver, called with the DataFrame and the id of each micro-batch.

    A batch that runs again has the same id.

    Attributes:
        function: Called as `function(frame, batch_id)`.
    """

    function: Callable[[DataFrame, int], None]


@explained()
@attrs.frozen
class Foreach:
    """
    A function on the executors, called with each row. A batch that runs again calls it again.

    Attributes:
        writer: Called as `writer(row)`; or an object with a method `process(row)`, and optionally
            `open(partition_id, epoch_id)` and `close(error)`.
    """

    writer: Any


@explained()
@attrs.frozen
class Console:
    """
    The standard output of the driver, for inspection.

    Attributes:
        rows: How many rows of a micro-batch are shown.
        truncate: Whether long values are truncated.
    """

    rows: int = 20
    truncate: bool = True


@explained()
@attrs.frozen
class Memory:
    """
    A table in the driver's memory, for tests and notebooks.

    Attributes:
        table: The name of the table, and of the query.
    """

    table: str


@explained()
@attrs.frozen
class ExactlyOnce:
    """
    Your own function for each micro-batch, which isn't called for one that it has written.

    In one transaction, `write` stores the rows, and the number of the micro-batch under the id of
    the query. `last_batch` reads that number. A micro-batch that runs again, after a crash at any
    point, is then either there or not. The rows are persisted, so `write` may run several actions.

    Attributes:
        write: Called on the driver as `write(frame, query_id, batch_id)`.
        last_batch: Called as `last_batch(query_id)` when the query starts, and before each
            micro-batch. Returns the number of the last one that is stored for the query, and None
            where there is none.
    """

    write: Callable[[DataFrame, str, int], None]
    last_batch: Callable[[str], int | None]


@explained()
@attrs.frozen
class Delta:
    """
    A table of Delta Lake, to which each row is written exactly once. Needs the extra `delta`.

    The table is made if there is none. Each micro-batch is one transaction, which carries the id of
    the query, the kind of the rows and the number of the micro-batch: Delta leaves out one that the
    table has already.

    Example:
        from sessionkit.spark import Delta

        by_path = Delta("/tables/visits")
        by_name = Delta("shop.visits")
        latest_by_user = Delta("shop.latest_visits", key="user")

    Attributes:
        table: The name of a table, or the path of one: a path has a `/`, or is a `Path`.
        key: The columns by which a row replaces an earlier one. By default it is `session_id` for
            sessions; other rows are added. Of a session that gives several revisions, the rows of
            the highest one stay, and none that another row `supersedes`.

    Raises:
        SpecError: There is no name.
    """

    table: str | os.PathLike[str] = attrs.field()
    key: tuple[str, ...] | None = attrs.field(default=None, converter=optional(_names))

    @table.validator
    def _check_table(self, _: object, value: str | os.PathLike[str]) -> None:
        if not os.fspath(value):
            found = "`table` must be the name or the path of a table, found ''"
            raise SpecError(with_hint(found, 'write Delta("visits") or Delta("/tables/visits")'))

    @property
    def is_path(self) -> bool:
        """Whether the table is named by its path."""
        return not isinstance(self.table, str) or "/" in self.table

    @property
    def identifier(self) -> str:
        """What SQL calls the table."""
        place = os.fspath(self.table)
        if not self.is_path:
            return place
        escaped = place.replace("`", "``")
        return f"delta.`{escaped}`"


@explained()
@attrs.frozen
class Postgres:
    """
    A table of PostgreSQL, to which each row is written exactly once. Needs the extra `postgres`.

    The table is made if there is none. The executors copy the rows of a micro-batch into a staging
    table of this query; then one transaction moves them, and notes the number of the micro-batch
    in the table `sessionkit_batches`. So a micro-batch that runs again changes nothing. One query
    owns the table: another one is refused, and so is an earlier run of the same query that is still
    alive.

    Example:
        import os
        from sessionkit.spark import Postgres

        visits = Postgres("postgresql://etl@db.example/shop", "web.visits")
        with_password = Postgres(lambda: os.environ["SHOP_DSN"], "web.visits")

    Attributes:
        dsn: How to connect, as `postgresql://user@host/database` or `host=... dbname=...`; or a
            function that returns it, called where the connection is made, on the driver and on
            the executors. No message and no plan shows it.
        table: The name of the table, with or without its schema: `visits`, `web.visits`. Case
            counts. A part with a dot is written in double quotes: `web."visits.v2"`.
        key: The columns by which a row replaces an earlier one. By default it is `session_id` for
            sessions; other rows are added. Of a session that gives several revisions, the rows of
            the highest one stay, and none that another row `supersedes`. A second session with the
            `session_id` of another one is refused.
        retry_for: How long a running query tries to reach the server again, in processing time
            since it was lost; zero gives up at once. When a query starts, nothing is repeated.

    Raises:
        SpecError: The table's name is too long, isn't one, or is that of a table which sessionkit
            keeps for itself; `dsn` can be misread; or `retry_for` isn't a duration.
    """

    dsn: str | Callable[[], str] = attrs.field(repr=False)
    table: str = attrs.field()
    key: tuple[str, ...] | None = attrs.field(default=None, converter=optional(_names))
    retry_for: timedelta = attrs.field(
        default=timedelta(minutes=2), converter=_retry_for, kw_only=True
    )

    @dsn.validator
    def _check_dsn(self, _: object, value: str | Callable[[], str]) -> None:
        if isinstance(value, str):
            check_readable(value)

    @table.validator
    def _check_table(self, _: object, value: str) -> None:
        if NAME.fullmatch(value) is None or "\0" in value:
            found = f"`table` must be a name such as visits or web.visits, found {value!r}"
            hint = 'write table="visits"; put a part that has a dot in double quotes'
            raise SpecError(with_hint(found, hint))
        for name in self.names:
            if not fits(name):
                found = f"a table's name may have {LONGEST_NAME} bytes, and `{name}` has more"
                raise SpecError(with_hint(found, "PostgreSQL would cut it; take a shorter one"))
        if self.names[-1] == LEDGER or self.names[-1].startswith(STAGING):
            found = f"sessionkit keeps its own notes in tables such as {self.names[-1]}"
            raise SpecError(with_hint(found, "give the rows a table of another name"))

    @property
    def names(self) -> tuple[str, ...]:
        """The schema, where there is one, and the name."""
        found = NAME.fullmatch(self.table)
        return tuple(_unquoted(part) for part in found.groups() if part) if found else ()


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def fits(name: str) -> bool:
    """Return whether PostgreSQL keeps a name whole."""
    return len(name.encode()) <= LONGEST_NAME


def check_readable(dsn: str) -> None:
    """Check that PostgreSQL doesn't take a part of the password for something else, and show it."""
    uri = URI.match(dsn)
    if uri and (uri[1].count("@") > 1 or "@" in uri[1].partition("/")[2]):
        raise unreadable()


def unreadable() -> SpecError:
    """Return the error for a text by which nobody can connect, without the text."""
    found = "PostgreSQL can't read `dsn`, which isn't shown here: it may have a password"
    hint = (
        "write it as postgresql://user@host/database, with %40 for an @ in the password and %2F "
        "for a /, or as host=... dbname=... user=..."
    )
    return SpecError(with_hint(found, hint))


RouteSink: TypeAlias = Postgres | Delta | Files | Kafka | ExactlyOnce | ForeachBatch


@explained({"rejected": "rejected=None, or a sink for the rows of all other kinds"})
@attrs.frozen(kw_only=True)
class Routes:
    """
    A sink for each kind of row, from one run of the stateful operator.

    The frame comes from `sessionize` or `apply_with_state`, with rejected rows. Every row has a
    sink: `rejected` takes those of a kind that no other argument names. A result row has the
    columns of a result and those that you add to the frame, and any other row all columns. No two
    sinks share a table, a folder or a topic.

    Example:
        from sessionkit.spark import Files, Routes, sessionize, start_query

        # stream and visits: as in the example of start_query
        query = start_query(
            sessionize(stream, visits, with_rejected=True),
            sink=Routes(
                session=Files("parquet", "/data/visits"),
                late=Files("parquet", "/data/late"),
                rejected=Files("parquet", "/data/rejected"),
            ),
            trigger="1 minute",
            checkpoint="/checkpoints/visits",
        )

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
        erased: Takes the keys that were erased, in place of `rejected`.
    """

    session: RouteSink | None = None
    result: RouteSink | None = None
    rejected: RouteSink | None
    event: RouteSink | None = None
    late: RouteSink | None = None
    duplicate: RouteSink | None = None
    quarantined: RouteSink | None = None
    failed: RouteSink | None = None
    failed_output: RouteSink | None = None
    erased: RouteSink | None = None

    @property
    def named(self) -> dict[str, RouteSink]:
        """The kinds that have a sink of their own."""
        sinks = attrs.asdict(self, recurse=False)
        return {kind: sink for kind, sink in sinks.items() if sink is not None and kind != REST}


NativeSink: TypeAlias = Files | Kafka | ForeachBatch | Foreach | Console | Memory
BatchSink: TypeAlias = Routes | Postgres | Delta | ExactlyOnce
"""Those that take micro-batches whole, by a function of `foreachBatch`."""
StreamSink: TypeAlias = NativeSink | BatchSink


def described(sink: RouteSink | None) -> str:
    """Return what messages call the place of a sink."""
    match sink:
        case Files():
            return f"the folder {os.fspath(sink.path)}"
        case Postgres() | Delta():
            return f"the table {sink.table}"
        case Kafka():
            return f"the topic {sink.topic}"
        case _:
            return "the store of `last_batch`"
