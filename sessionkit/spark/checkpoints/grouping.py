"""Keys as Spark groups by them: which group of a checkpoint has a key, and which rows of it."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from sessionkit._engine.logic import Memory
from sessionkit._engine.rows.table import key_columns, key_schema, whole
from sessionkit.errors import SessionkitError, StateValueError, with_hint
from sessionkit.spark.jobs.labels import label_of
from sessionkit.spark.jobs.packed_rows import bucket_of_forms
from sessionkit.spec.shared import AnySpec
from sessionkit.state import FieldType, key_form, stored_numbers

__all__ = ["group_has_key", "key_forms", "key_row", "only_key"]


def key_row(spec: AnySpec, key: Any) -> pa.Table:
    """
    Return a key as the key columns of one row.

    Args:
        spec: Whose key.
        key: The value of the key column; a tuple of values if there are several columns.

    Raises:
        SessionkitError: It has the wrong number of values, or a value another type.
    """
    values = tuple(key) if isinstance(key, tuple) else (key,)
    if len(values) != len(spec.key_fields):
        found = f"a key has the columns {', '.join(spec.keys)}; found {key!r}"
        raise SessionkitError(with_hint(found, "pass a value for each of them, as a tuple"))
    try:
        columns = [
            pa.array([field.type.dump(field.type.coerce(value, field.name))], field.type.arrow)
            for field, value in zip(spec.key_fields, values, strict=True)
        ]
    except StateValueError as error:
        raise SessionkitError(str(error)) from error
    return pa.Table.from_arrays(columns, schema=pa.schema(key_schema(spec)))


def only_key(memory: Memory, key: pa.Table) -> Memory:
    """Return what a group remembers of one key."""
    return Memory(_with_key(memory.kept, key), _with_key(memory.buffered, key))


def _with_key(rows: pa.Table, key: pa.Table) -> pa.Table:
    for name in key.column_names:
        rows = rows.filter(pc.equal(rows[name], key[name][0]))
    return rows


def key_forms(spec: AnySpec, rows: pa.Table) -> list[pa.Array]:
    """Return the key columns of some rows in the forms by which Spark groups."""
    return [
        _form(field.type, column)
        for field, column in zip(spec.key_fields, key_columns(rows), strict=True)
    ]


def _form(kind: FieldType, column: pa.ChunkedArray) -> pa.Array:
    form = key_form(kind)
    if form.of is not None:
        return pa.array(map(form.of, column.to_pylist()), pa.string())
    return whole(stored_numbers(column) if pa.types.is_temporal(column.type) else column)


def group_has_key(spec: AnySpec, group: Sequence[Column], key: pa.Table) -> Column:
    """
    Return the condition that a group has a key.

    Args:
        spec: Whose groups.
        group: What Spark grouped by.
        key: The key columns of one row.
    """
    forms = [
        F.lit(_literal(form[0].as_py())).cast(key_form(field.type).sql)
        for field, form in zip(spec.key_fields, key_forms(spec, key), strict=True)
    ]
    if spec.layout == "per_key":
        found = F.lit(True)  # noqa: FBT003 (a literal of SQL)
        for column, form in zip(group, forms, strict=True):
            found &= column == form
        return found
    bucket = bucket_of_forms(spec, forms, spec.bucket_count)
    return group[0] == label_of(bucket, spec.bucket_count)


def _literal(value: Any) -> Any:
    return bytearray(value) if isinstance(value, bytes) else value
