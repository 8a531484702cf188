"""Copy a PostgreSQL table into DuckDB, without SQL injection or passwords in messages."""

import re
from importlib import import_module
from typing import Any, Final

import pyarrow as pa

from sessionkit import SchemaError, SpecError
from sessionkit._for_addons import check_extra

CHUNK: Final = 50_000
KNOWN: Final = frozenset(
    {"bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "date"}
    | {"timestamp", "timestamptz", "interval"}
)
"""The types with the same names in DuckDB."""
JSON: Final = frozenset({"json", "jsonb"})
TEXTS: Final = frozenset({"text", "JSON"})
SCHEMES: Final = ("postgresql://", "postgres://")
SECRET: Final = re.compile(r"\w\w:/.*@|passw(?:or)?d\s*=", re.IGNORECASE | re.DOTALL)
"""Matches a text that may have a password: any form of a database address."""
URI: Final = re.compile(r"postgres(?:ql)?://([^?]*)")
NAME: Final = re.compile(r'(?:("(?:[^"]|"")+"|[^".]+)\.)?("(?:[^"]|"")+"|[^".]+)')
HINT: Final = "write it as postgresql://user@host/database, with %40 for an @ in the password"


def sql_name(column: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + column.replace('"', '""') + '"'


def is_address(place: str) -> bool:
    """Return whether `rows` is the address of a PostgreSQL database."""
    return place.startswith(SCHEMES)


def check_no_secret(name: str, value: object, hint: str) -> None:
    """Refuse a text that may be a database address with a password, without showing it."""
    if SECRET.search(str(value)):
        found = (
            f"`{name}` is like the address of a database, and isn't shown: it may have a password"
        )
        raise SpecError(found, hint)


def copy_table(connection: Any, view: str, address: str, table: str | None) -> None:
    """Copy a PostgreSQL table into DuckDB in chunks."""
    names = _names(table)
    check_extra("postgres", "psycopg", "a table of PostgreSQL", "where the report is made")
    psycopg = import_module("psycopg")
    _check_readable(psycopg, address)
    source = psycopg.sql.SQL(".").join(map(psycopg.sql.Identifier, names))
    with psycopg.connect(address) as server, server.cursor("rows") as cursor:
        try:
            shape = server.execute(psycopg.sql.SQL("SELECT * FROM {} LIMIT 0").format(source))
        except psycopg.errors.UndefinedTable:
            found = f"the database has no table {table}"
            raise SchemaError(found, "write its name as it's stored: case counts") from None
        columns = [column.name for column in shape.description]
        kinds = [_type_of(server.adapters.types, column.type_code) for column in shape.description]
        # What DuckDB lacks comes as PostgreSQL writes it; psycopg would read JSON into dicts.
        read = (
            psycopg.sql.SQL("{}::text" if kind in TEXTS else "{}").format(
                psycopg.sql.Identifier(name)
            )
            for name, kind in zip(columns, kinds, strict=True)
        )
        listed = psycopg.sql.SQL(", ").join(read)
        cursor.execute(psycopg.sql.SQL("SELECT {} FROM {}").format(listed, source))
        typed = ", ".join(map(" ".join, zip(map(sql_name, columns), kinds, strict=True)))
        connection.execute(f"CREATE TABLE {view} ({typed})")
        while part := cursor.fetchmany(CHUNK):
            values = map(list, zip(*part, strict=True))
            connection.register("part", pa.table(list(values), names=columns))
            connection.execute(f"INSERT INTO {view} SELECT * FROM part")


def _names(table: str | None) -> list[str]:
    """Return the schema, if the name has one, and the name of a table."""
    if table is None:
        found = "`rows` is the address of a database, and which table has the rows isn't said"
        raise SchemaError(found, 'pass table="visits"')
    match = NAME.fullmatch(table)
    if match is None or "\0" in table:
        found = f"`table` must be a name such as visits or web.visits, found {table!r}"
        raise SpecError(found, 'write table="visits"; put a part that has a dot in double quotes')
    parts = [part for part in match.groups() if part]
    return [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts]


def _check_readable(psycopg: Any, address: str) -> None:
    """Check that PostgreSQL can't mistake a part of a password for another part, and show it."""
    uri, port = URI.match(address), ""
    is_clear = uri and uri[1].count("@") <= 1 and "@" not in uri[1].partition("/")[2]
    try:
        port = str(psycopg.conninfo.conninfo_to_dict(address).get("port") or 0)
    except psycopg.ProgrammingError:
        is_clear = False
    if not (is_clear and port.replace(",", "").isdigit()):
        found = "PostgreSQL can't read the address in `rows`, which is hidden for its password"
        raise SpecError(found, HINT)


def _type_of(types: Any, oid: int) -> str:
    """Return the DuckDB type of a column; text for types that DuckDB lacks."""
    kind = types.get(oid)
    if kind is not None and kind.name in JSON and kind.oid == oid:
        return "JSON"
    is_known = kind is not None and kind.name in KNOWN
    name = kind.name if is_known else "text"
    return f"{name}[]" if is_known and kind.array_oid == oid else name
