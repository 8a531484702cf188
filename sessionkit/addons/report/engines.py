"""Where result rows are aggregated: in DuckDB, or in Spark where they are a DataFrame of Spark."""

import json
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

import attrs
import pyarrow as pa

from sessionkit.addons.report.columns import Kind
from sessionkit.arguments import check_extra
from sessionkit.errors import SchemaError, UnsupportedError, with_hint

ROWS: Final = "sessionkit_rows"
"""The view of the rows that came in."""
DAY: Final = 86_400_000
EPOCH: Final = "DATE'1970-01-01'"
CHUNK: Final = 50_000
POSTGRES: Final = frozenset(
    {"bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "date"}
    | {"timestamp", "timestamptz", "interval"}
)


@attrs.frozen(kw_only=True)
class Dialect:
    """
    What two dialects of SQL call the same thing.

    Attributes:
        millis: The milliseconds since the epoch of a timestamp.
        truncated: Those of the start of its week or month, in UTC.
        seconds: The seconds from one timestamp to another, as a float.
        quantile: A quantile of a column, approximately.
        item: The item of a list at a place from 1; null beyond its end.
        last: The last item of a list.
        text: A value as text.
        explode: The items of a list, each in a row of its own.
        quote: What stands around a name.
    """

    millis: str
    truncated: str
    seconds: str
    quantile: str
    item: str
    last: str
    text: str
    explode: str
    quote: str


class Engine(Protocol):
    """What the report asks of an engine."""

    @property
    def dialect(self) -> Dialect:
        """How it is asked."""

    def kinds(self) -> dict[str, Kind]:
        """Return the columns of the rows, and their kinds."""

    def define(self, name: str, query: str) -> None:
        """Name a query, so that others can be asked of it."""

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query, which are few."""


DUCKDB: Final = Dialect(
    millis="epoch_ms({0})",
    truncated="epoch_ms(date_trunc('{1}', {0}))",
    seconds="(epoch_us({1}) - epoch_us({0})) / 1e6",
    quantile="approx_quantile({0}, {1})",
    item="{0}[{1}]",
    last="{0}[len({0})]",
    text="CAST({0} AS VARCHAR)",
    explode="unnest({0})",
    quote='"',
)
SPARK: Final = Dialect(
    millis="unix_millis({0})",
    # Dates have no time zone; `date_trunc` takes that of the session.
    truncated=f"datediff(trunc(date_add({EPOCH}, CAST(floor(unix_millis({{0}}) / {DAY}) AS INT)), "
    f"'{{1}}'), {EPOCH}) * {DAY}L",
    seconds="(unix_micros({1}) - unix_micros({0})) / 1e6",
    quantile="percentile_approx({0}, {1})",
    item="get({0}, {1} - 1)",
    last="get({0}, size({0}) - 1)",
    text="CAST({0} AS STRING)",
    explode="explode({0})",
    quote="`",
)
NUMBERS: Final = ("INT", "BIG", "SMALL", "TINY", "HUGE", "U", "FLOAT", "DOUBLE", "DECIMAL", "LONG")


@attrs.frozen
class DuckDB:
    """Rows of files, tables or frames in memory."""

    connection: Any
    dialect: Dialect = DUCKDB

    def kinds(self) -> dict[str, Kind]:
        found = self.connection.sql(f"FROM {ROWS}")
        return {
            name: _kind(str(kind)) for name, kind in zip(found.columns, found.types, strict=True)
        }

    def define(self, name: str, query: str) -> None:
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")

    def ask(self, query: str) -> list[dict[str, Any]]:
        found = self.connection.sql(query)
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


@attrs.frozen
class Spark:
    """Rows of a DataFrame of Spark: only the few that are shown leave the cluster."""

    frame: Any
    dialect: Dialect = SPARK

    def kinds(self) -> dict[str, Kind]:
        return {name: _kind(kind.upper()) for name, kind in self.frame.dtypes}

    def define(self, name: str, query: str) -> None:
        self.frame.sparkSession.sql(query).createOrReplaceTempView(name)

    def ask(self, query: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in self.frame.sparkSession.sql(query).collect()]


def _kind(sql: str) -> Kind:
    if sql.startswith("ARRAY") or sql.endswith("[]"):
        return "list"
    if sql in {"BOOLEAN", "VARCHAR", "STRING"}:
        return "bool" if sql == "BOOLEAN" else "text"
    if sql.startswith(("TIMESTAMP", "DATE")):
        return "time"
    return "number" if sql.startswith(NUMBERS) else "other"


# -- where rows come from -----------------------------------------------------------------------


def engine_of(rows: Any, table: str | None) -> Engine:
    """
    Return the engine for a DataFrame, an Arrow table, a folder, a file or an address.

    Raises:
        UnsupportedError: A library is missing.
        SchemaError: There are no rows there.
    """
    if hasattr(rows, "sparkSession"):
        if rows.isStreaming:
            found = "a report shows rows that are there, and this frame is a stream"
            raise SchemaError(with_hint(found, "pass spark.read... of the table it writes"))
        rows.createOrReplaceTempView(ROWS)
        return Spark(rows)
    check_extra("report", "duckdb", "the report", "where it is made")
    connection = import_module("duckdb").connect()
    connection.execute("SET TimeZone = 'UTC'")
    if isinstance(rows, str | Path):
        _read(connection, str(rows), table)
    else:
        connection.register(ROWS, rows)
    return DuckDB(connection)


def _read(connection: Any, place: str, table: str | None) -> None:
    if place.startswith(("postgresql://", "postgres://")):
        _read_postgres(connection, place, table)
        return
    folder = Path(place)
    if (folder / "_delta_log").is_dir():
        if find_spec("deltalake") is None:
            found = "a Delta table needs deltalake, which isn't installed"
            raise UnsupportedError(with_hint(found, "pip install deltalake"))
        table_of = import_module("deltalake").DeltaTable
        connection.register(ROWS, table_of(place).to_pyarrow_dataset())
        return
    files = [str(path) for path in _files(folder)]
    if not files:
        found = f"there are no Parquet files in {place}"
        raise SchemaError(with_hint(found, "pass the folder or the table that the query writes"))
    try:
        connection.read_parquet(files, hive_partitioning=folder.is_dir()).create_view(ROWS)
    except import_module("duckdb").Error as error:
        found = f"{place} can't be read as Parquet: {error}"
        raise SchemaError(with_hint(found, "pass the folder that the query writes")) from error


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder that belong to it: Spark's file sink lists those in its log."""
    if folder.is_file():
        return [folder]
    if not (folder / "_spark_metadata").is_dir():
        return sorted(path for path in folder.rglob("*.parquet") if not _hidden(path, folder))
    logged = _logged(folder / "_spark_metadata")
    return sorted({folder / path for path in logged if (folder / path).exists()})


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)


def _logged(log: Path) -> Iterator[str]:
    """Yield the files that finished micro-batches wrote, relative to the folder of the log."""
    batches = {int(entry.stem): entry for entry in log.iterdir() if entry.stem.isdecimal()}
    compacted = [number for number, entry in batches.items() if entry.suffix == ".compact"]
    first = max(compacted, default=0)
    for number, entry in sorted(batches.items()):
        if number >= first:
            for line in entry.read_text(encoding="utf-8").splitlines()[1:]:
                written = json.loads(line)["path"]
                yield written.rpartition(f"/{log.parent.name}/")[2]


def _read_postgres(connection: Any, address: str, table: str | None) -> None:
    """Copy a table of PostgreSQL into DuckDB, some rows at a time."""
    if table is None:
        found = f"which table of {address.rpartition('/')[2]} has the rows isn't said"
        raise SchemaError(with_hint(found, 'pass table="visits"'))
    check_extra("postgres", "psycopg", "a table of PostgreSQL", "where the report is made")
    psycopg = import_module("psycopg")
    name = psycopg.sql.SQL(".").join(map(psycopg.sql.Identifier, table.split(".")))
    with psycopg.connect(address) as server, server.cursor("rows") as cursor:
        cursor.execute(psycopg.sql.SQL("SELECT * FROM {}").format(name))
        names = [column.name for column in cursor.description]
        kinds = [_postgres_type(server.adapters.types, one.type_code) for one in cursor.description]
        columns = ", ".join(f'"{name}" {kind}' for name, kind in zip(names, kinds, strict=True))
        connection.execute(f"CREATE TABLE {ROWS} ({columns})")
        while part := cursor.fetchmany(CHUNK):
            values = map(list, zip(*part, strict=True))
            connection.register("part", pa.table(list(values), names=names))
            connection.execute(f"INSERT INTO {ROWS} SELECT * FROM part")


def _postgres_type(types: Any, oid: int) -> str:
    """Return the type of a column by a name that DuckDB has too; text for all others."""
    found = types.get(oid)
    known = found is not None and found.name in POSTGRES
    name = found.name if known else "text"
    return f"{name}[]" if known and found.array_oid == oid else name
