"""What there is in a database, and whether it is ours and fits the rows."""

from collections.abc import Sequence
from typing import Any, Final

import attrs
from psycopg import Connection
from psycopg.sql import Identifier, Literal
from pyspark.sql import types as T

from sessionkit.errors import SpecError, with_hint
from sessionkit.spark.sinks.postgres.statements import (
    LEDGER_COLUMNS,
    LEDGER_MARK,
    Statements,
    is_json,
    postgres_type,
)
from sessionkit.spark.sinks.routes import SUPERSEDES, check_has_columns
from sessionkit.spark.sinks.tables import Postgres

SCHEMA_OF: Final = """\
SELECT coalesce((SELECT nspname FROM pg_class JOIN pg_namespace AS s ON relnamespace = s.oid
                 WHERE pg_class.oid = to_regclass(%s)), current_schema())::text"""
MAY_USE: Final = """\
SELECT has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE')
FROM pg_namespace WHERE nspname = %s"""
MAY_NOT: Final = """\
SELECT wanted FROM unnest(%s::text[]) AS wanted WHERE NOT has_table_privilege(%s, wanted)"""
RELATION: Final = """\
SELECT relkind::text, obj_description(oid, 'pg_class'), pg_has_role(relowner, 'USAGE')
FROM pg_class WHERE oid = to_regclass(%s)"""
COLUMNS: Final = """\
SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"""
UNIQUE: Final = """\
SELECT 1 FROM pg_index WHERE indrelid = to_regclass(%s) AND indisunique AND indpred IS NULL
AND (SELECT array_agg(attname::text ORDER BY attname::text) FROM pg_attribute
     WHERE attrelid = indrelid AND attnum = ANY(indkey)) = %s"""
SERVER: Final = "SELECT pg_postmaster_start_time(), current_database()"


@attrs.frozen
class Relation:
    """A table, or something else of its name."""

    kind: str
    comment: str | None
    is_ours: bool

    @classmethod
    def named(cls, connection: Connection[Any], name: Identifier) -> "Relation | None":
        """Find one; None where there is none."""
        found = connection.execute(RELATION, [name.as_string(connection)]).fetchone()
        return None if found is None else cls(*found)


def place(connection: Connection[Any], sink: Postgres) -> tuple[str, str]:
    """Return the schema and the name of a table, which is made where there is none."""
    *named, name = sink.names
    if not named:
        asked = [Identifier(name).as_string(connection)]
        named = [row[0] for row in connection.execute(SCHEMA_OF, asked)]
    schema, role = named[0], _role(connection)
    if schema is None:
        found = f"no schema of the search path exists, so there is none for the table {name}"
        raise SpecError(with_hint(found, f'name one: table="schema.{name}"'))
    may = connection.execute(MAY_USE, [schema]).fetchone()
    said = Identifier(schema).as_string(connection)
    if may is None:
        found = f"there is no schema {said} for the table {name}"
        raise SpecError(with_hint(found, f"make it: CREATE SCHEMA {said}"))
    if not may[0]:
        found = f"the role {role} may not make tables in the schema {said}, as the sink has to"
        user = Identifier(role).as_string(connection)
        raise SpecError(with_hint(found, f"GRANT USAGE, CREATE ON SCHEMA {said} TO {user}"))
    return schema, name


def _role(connection: Connection[Any]) -> str:
    """Return the role of whose rights are asked: not always the one that has logged in."""
    return "".join(connection.execute("SELECT current_user").fetchone() or ())


def server(connection: Connection[Any]) -> tuple[object, ...]:
    """Return what tells a database from others, whatever the name of its host."""
    return tuple(connection.execute(SERVER).fetchone() or ())


def check_ours(
    connection: Connection[Any], statements: Statements, query_id: str | None
) -> Relation | None:
    """Check that the ledger and the staging table are ours; return the ledger, if there is one."""
    ledger = Relation.named(connection, statements.ledger)
    if ledger is not None:
        _check_ledger(connection, statements, ledger)
    if query_id is not None:
        name = statements.staging(query_id)
        staging = Relation.named(connection, name)
        if staging is not None and staging.comment != statements.staging_mark(query_id):
            _refuse(connection, name, "drop it if nobody needs it, or give it another name")
        if staging is not None and not staging.is_ours:
            _refuse_role(connection, name, "DROP TABLE {}")
    return ledger


def _check_ledger(connection: Connection[Any], statements: Statements, ledger: Relation) -> None:
    """Check the mark of the ledger; one from before there were marks is known by its columns."""
    name = statements.ledger
    columns = types_of(connection, name)
    unmarked = ledger.comment is None
    if {*columns} != {*LEDGER_COLUMNS} or not (unmarked or ledger.comment == LEDGER_MARK):
        _refuse(connection, name, "give it another name, or take a table in another schema")
    if unmarked and not ledger.is_ours:
        mark = Literal(LEDGER_MARK).as_string(connection)
        _refuse_role(connection, name, f"COMMENT ON TABLE {{}} IS {mark}")
    _check_may(connection, name, ("SELECT", "INSERT", "UPDATE"))


def _refuse(connection: Connection[Any], name: Identifier, hint: str) -> None:
    found = f"the table {name.as_string(connection)} isn't one that sessionkit has made"
    raise SpecError(with_hint(f"{found}, and it needs the name", hint))


def _refuse_role(connection: Connection[Any], name: Identifier, statement: str) -> None:
    said, role = name.as_string(connection), _role(connection)
    found = f"the table {said} belongs to another role than {role}, which has to change it"
    raise SpecError(with_hint(found, f"let its owner run: {statement.format(said)}"))


def _check_may(connection: Connection[Any], name: Identifier, wanted: Sequence[str]) -> None:
    said, role = name.as_string(connection), _role(connection)
    missing = [row[0] for row in connection.execute(MAY_NOT, [[*wanted], said])]
    if missing:
        found = f"the role {role} may not {missing[0]} in the table {said}"
        user = Identifier(role).as_string(connection)
        raise SpecError(with_hint(found, f"GRANT {', '.join(wanted)} ON {said} TO {user}"))


def check_owner(
    connection: Connection[Any], statements: Statements, query_id: str | None
) -> int | None:
    """Check that a table belongs to no other query, by a ledger that is there."""
    owner = connection.execute(statements.owner()).fetchone()
    if owner is None:
        return None
    if owner[0] != query_id:
        found = f"the table {statements.said} belongs to the query {owner[0]}"
        here = "this one has a new checkpoint" if query_id is None else f"this one is {query_id}"
        hint = (
            "write to another table, or go on from the checkpoint of that query; if it is gone for "
            f"good, give its table away: {statements.release()}"
        )
        raise SpecError(with_hint(f"{found}, and {here}", hint))
    if owner[1] < 0:
        return None
    if Relation.named(connection, statements.table) is None:
        found = f"the table {statements.said} is gone, which had the micro-batches to {owner[1]}"
        hint = f"restore it, or go on with an empty one: {statements.release()}"
        raise SpecError(with_hint(found, hint))
    return int(owner[1])


def types_of(connection: Connection[Any], table: Identifier) -> dict[str, str]:
    """Return the columns of a table and their types; nothing where there is no table."""
    return dict(connection.execute(COLUMNS, [table.as_string(connection)]).fetchall())


def check_table(connection: Connection[Any], statements: Statements, schema: T.StructType) -> None:
    """Check that a table can take rows."""
    name = statements.table.as_string(connection)
    types = types_of(connection, statements.table)
    check_has_columns(statements.said, statements.columns, types)
    for field in schema.fields:
        made = postgres_type(field.dataType, field.name)
        if not _takes_parts(field.name, made, types[field.name]):
            found = (
                f"the column `{field.name}` of the table {statements.said} is {types[field.name]}"
            )
            kind = field.dataType.simpleString()
            hint = f"make it {made}, or leave the table to the sink to make"
            raise SpecError(with_hint(f"{found}, and the rows have {kind} for it", hint))
    unique = [name, sorted(statements.key)]
    if statements.key and connection.execute(UNIQUE, unique).fetchone() is None:
        found = f"the table {statements.said} has no unique index of exactly "
        key = ", ".join(Identifier(column).as_string(connection) for column in statements.key)
        hint = f"add one: ALTER TABLE {name} ADD PRIMARY KEY ({key})"
        raise SpecError(with_hint(f"{found}({', '.join(statements.key)})", hint))
    wanted = ("INSERT", "SELECT", "UPDATE", "DELETE") if statements.key else ("INSERT", "SELECT")
    _check_may(connection, statements.table, wanted)


def _takes_parts(name: str, made: str, kind: str) -> bool:
    """Return whether a column can take values with parts, for which the sink makes another."""
    if is_json(made):
        return is_json(kind)
    if made.endswith("[]"):
        return kind.endswith("[]") or (is_json(kind) and name != SUPERSEDES)
    return True
