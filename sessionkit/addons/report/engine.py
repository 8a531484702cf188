"""Read result rows from where they are stored into DuckDB."""

import json
from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa

from sessionkit import SchemaError, SpecError
from sessionkit._for_addons import check_extra
from sessionkit.addons.report.columns import Kind
from sessionkit.addons.report.postgres import check_no_secret, copy_table, is_address, sql_name
from sessionkit.errors import UnsupportedError

ROWS: Final = "sessionkit_rows"
"""The view of the result rows."""
NUMBERS: Final = ("INT", "BIG", "SMALL", "TINY", "HUGE", "U", "FLOAT", "DOUBLE", "DECIMAL", "LONG")


@attrs.frozen
class Engine:
    """DuckDB, and the rows as a view of it."""

    connection: Any

    def kinds(self) -> dict[str, Kind]:
        rows = self.connection.sql(f"FROM {ROWS}")
        return {name: _kind(str(kind)) for name, kind in zip(rows.columns, rows.types, strict=True)}

    def view(self, name: str, query: str) -> None:
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")

    def keep(self, name: str, query: str) -> None:
        """Create a table with the rows of a query, for several further queries."""
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")

    def close(self) -> None:
        """Free the memory of all tables."""
        self.connection.close()

    def ask(self, query: str) -> list[dict[str, Any]]:
        relation = self.connection.sql(query)
        return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]

    def columns(self, query: str) -> dict[str, list[Any]]:
        relation = self.connection.sql(query)
        rows = relation.fetchall()
        return {name: [row[n] for row in rows] for n, name in enumerate(relation.columns)}


def _kind(sql: str) -> Kind:
    if sql.startswith("ARRAY") or sql.endswith("[]"):
        return "list"
    if sql.startswith(("MAP", "STRUCT", "JSON")):
        return "map" if sql.startswith("MAP") else "json"
    if sql in {"BOOLEAN", "VARCHAR", "STRING"}:
        return "bool" if sql == "BOOLEAN" else "text"
    if sql.startswith(("TIMESTAMP", "DATE")):
        return "time"
    if sql == "INTERVAL":
        return "interval"
    return "number" if sql.startswith(NUMBERS) else "other"


def engine_of(rows: Any, table: str | None) -> Engine:
    """
    Return DuckDB with the rows of a DataFrame, an Arrow table, a folder, a file or an address.

    Raises:
        UnsupportedError: A library is missing.
        SpecError: The arguments are swapped; no message shows an address.
        SchemaError: The place has no rows.
    """
    _check(rows, table)
    if hasattr(rows, "sparkSession"):
        rows = _fetched(rows)
    check_extra("report", "duckdb", "the report", "where it is made")
    connection = import_module("duckdb").connect()
    connection.execute("SET TimeZone = 'UTC'")
    if isinstance(rows, str | Path):
        _read(connection, str(rows), table)
    else:
        connection.register(ROWS, rows)
    return Engine(connection)


def check_zone(engine: Engine, zone: str) -> None:
    """Check that DuckDB knows a time zone."""
    known = engine.columns("SELECT name FROM pg_timezone_names()")["name"]
    if zone not in known:
        near = get_close_matches(str(zone), known, n=1)
        found = f"`time_zone` must be the name of a time zone, found {zone!r}"
        raise SpecError(found, f'write time_zone="{near[0] if near else "Europe/Berlin"}"')


def _check(rows: Any, table: str | None) -> None:
    """Check that the arguments aren't swapped; no message shows an address with a password."""
    is_table = isinstance(rows, str) and is_address(rows)
    check_no_secret("table", table, "pass the address as `rows`, and the table's name as `table`")
    if isinstance(rows, str | Path) and not is_table:
        hint = "write the address of PostgreSQL as postgresql://user@host/database"
        check_no_secret("rows", rows, hint)
    if table is not None and not is_table:
        found = f"`table` names a table of a database, found {table!r}, and `rows` isn't one"
        raise SpecError(found, 'leave it out, or pass "postgresql://user@host/database" as `rows`')


def _fetched(frame: Any) -> pa.Table:
    if frame.isStreaming:
        found = "a report shows rows that are there, and this frame is a stream"
        raise SchemaError(found, "pass spark.read... of the table it writes")
    if not hasattr(frame, "toArrow"):
        found = f"Spark {frame.sparkSession.version} can't return a frame as an Arrow table"
        raise UnsupportedError(found, "write it to Parquet, and pass the folder")
    return frame.toArrow()


def _read(connection: Any, place: str, table: str | None) -> None:
    if is_address(place):
        copy_table(connection, ROWS, place, table)
        return
    folder = Path(place)
    if (folder / "_delta_log").is_dir():
        if find_spec("deltalake") is None:
            found = "a Delta table needs deltalake, which isn't installed"
            raise UnsupportedError(found, "pip install deltalake")
        table_of = import_module("deltalake").DeltaTable
        connection.register(ROWS, table_of(place).to_pyarrow_dataset())
        return
    files = [str(path) for path in _files(folder)]
    if not files:
        found = f"there are no Parquet files in {place}"
        raise SchemaError(found, "pass the folder or the table that the query writes")
    try:
        connection.read_parquet(files, hive_partitioning=folder.is_dir()).create_view("written")
        replaced = ", ".join(_intervals(connection, files[0]))
        rest = f" REPLACE ({replaced})" if replaced else ""
        connection.execute(f"CREATE TEMP VIEW {ROWS} AS SELECT *{rest} FROM written")
    except import_module("duckdb").Error as error:
        found = f"{place} can't be read as Parquet: {error}"
        raise SchemaError(found, "pass the folder that the query writes") from error


def _intervals(connection: Any, file: str) -> Iterator[str]:
    """Yield SQL that casts numbers to intervals, by Spark's schema: Parquet has no intervals."""
    schema = connection.execute(
        "SELECT decode(value) FROM parquet_kv_metadata(?) WHERE decode(key) = ?",
        [file, "org.apache.spark.sql.parquet.row.metadata"],
    ).fetchone()
    for field in json.loads(schema[0])["fields"] if schema else ():
        if str(field["type"]).startswith("interval") and "month" not in field["type"]:
            name = sql_name(field["name"])
            yield f"to_microseconds({name}) AS {name}"


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder: of a file sink, only those that its log or a mark names."""
    if folder.is_file():
        return [folder]
    if not (folder / "_spark_metadata").is_dir():
        marked = {*_marked(folder)}
        files = (path for path in folder.rglob("*.parquet") if not _is_hidden(path, folder))
        return sorted(
            path for path in files if not marked or path.relative_to(folder).parts[:2] in marked
        )
    logged = _logged(folder / "_spark_metadata")
    return sorted({folder / path for path in logged if (folder / path).exists()})


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)


def _marked(folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield the two folders of each micro-batch that a query with `Routes` has marked."""
    for note in folder.glob("query_id=*/_batches/**/part-*.txt"):
        of_query, _, number, *_ = note.relative_to(folder).parts
        for line in note.read_text(encoding="utf-8").splitlines():
            # Up to 0.1, a mark was the id of a run, which wrote to the folder of the query.
            is_note = line.startswith("{")
            said = json.loads(line) if is_note else {"is_mark": bool(line), "folder": ""}
            if said["is_mark"]:
                run = f"query_id={said['folder']}" if is_note else of_query
                yield run, f"batch_id={number}"


def _logged(log: Path) -> Iterator[str]:
    """Yield the files of finished micro-batches, relative to the folder of the log."""
    batches = {int(entry.stem): entry for entry in log.iterdir() if entry.stem.isdecimal()}
    compacted = [number for number, entry in batches.items() if entry.suffix == ".compact"]
    first = max(compacted, default=0)
    for number, entry in sorted(batches.items()):
        if number >= first:
            for line in entry.read_text(encoding="utf-8").splitlines()[1:]:
                written = json.loads(line)["path"]
                yield written.rpartition(f"/{log.parent.name}/")[2]
