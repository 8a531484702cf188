"""Columns of Spark on their way to Python."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from sessionkit.state import FieldType, inner_type, key_form

__all__ = ["OF_REJECTED", "grouping_form", "quoted", "to_wire"]

OF_REJECTED: Final = "sessionkit.of_rejected"
"""What the metadata of a column says that result rows don't have, where its name doesn't."""


def quoted(name: str) -> str:
    """Return a column name quoted, so that Spark reads none of its characters as syntax."""
    return f"`{name.replace('`', '``')}`"


def to_wire(column: Column, kind: FieldType) -> Column:
    """Return a column as it reaches Python, in a type of which Arrow makes the declared one."""
    kind = inner_type(kind)
    is_cast = kind.facts is not None and kind.facts.is_cast
    return column.cast(kind.sql) if is_cast else column


def grouping_form(name: str, kind: FieldType) -> Column:
    """Return a key column in a form by which Spark groups, nulls filled in."""
    form = key_form(kind)
    filling = bytearray(form.null) if isinstance(form.null, bytes) else form.null
    return F.coalesce(F.expr(form.made_by.format(quoted(name))), F.lit(filling))
