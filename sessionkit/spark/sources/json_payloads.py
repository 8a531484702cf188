"""Payloads of JSON as columns, by Spark's own parser, and why one can't be read."""

from collections.abc import Collection, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionkit._engine.wire.columns import UNREADABLE_COLUMN
from sessionkit.spark._columns import public_type, quoted
from sessionkit.spark.sources.columns import ddl
from sessionkit.spark.sources.payloads import Json
from sessionkit.spark.sources.values import PAYLOAD
from sessionkit.state import Field

__all__ = ["with_json"]

CORRUPT: Final = "_corrupt"
PARSED: Final = "_parsed"
ONE_OBJECT: Final = "array<struct<_:boolean>>"
AT_ITS_END: Final = r"\}\s*\z"
SHOWN: Final = 100
"""How many letters of a value a reason shows."""


def with_json(raw: DataFrame, payload: Json, fields: Collection[Field]) -> DataFrame:
    """
    Return rows with the fields of their payload, and the reason why it can't be read.

    Args:
        raw: Rows with a column `payload` of bytes.
        payload: How it is read.
        fields: The columns that it has.
    """
    options = {**payload.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    schema = ", ".join(filter(None, [ddl(fields), f"{CORRUPT} string"]))
    parsed = raw.withColumn(PARSED, F.from_json(_text(), schema, options))
    columns = [F.col(f"{PARSED}.{quoted(field.name)}").alias(field.name) for field in fields]
    reason = _reason(fields, payload.options)
    return parsed.select(*columns, *raw.columns, reason.alias(UNREADABLE_COLUMN))


def _text() -> Column:
    return F.col(PAYLOAD).cast("string")


def _reason(fields: Collection[Field], options: Mapping[str, str]) -> Column:
    text, parsed = _text(), F.col(PARSED)
    # Spark reads the first object of a payload, and ignores what follows it.
    objects = F.size(F.from_json(F.concat(F.lit("["), text, F.lit("]")), ONE_OBJECT, options))
    follows = ~text.rlike(AT_ITS_END) | F.coalesce(objects, F.lit(0)).__ne__(1)
    return (
        F.when(F.col(PAYLOAD).isNull(), "its payload is null")
        # Spark puts a question mark in place of what isn't UTF-8.
        .when(F.encode(text, "UTF-8") != F.col(PAYLOAD), "its payload isn't UTF-8")
        .when(parsed[CORRUPT].isNotNull(), F.coalesce(*_wrong_fields(fields, options), _not_json()))
        .when(parsed.isNull() | follows, _not_json())
    )


def _not_json() -> Column:
    return F.lit("its payload isn't one JSON object")


def _wrong_fields(fields: Collection[Field], options: Mapping[str, str]) -> list[Column]:
    """Return for each field a reason where it has a value that its type can't hold, else null."""
    if not fields:
        return []
    texts = ", ".join(f"{quoted(field.name)} string" for field in fields)
    raw = F.from_json(_text(), texts, options)
    return [
        F.when(
            raw[field.name].isNotNull() & F.col(PARSED)[field.name].isNull(),
            F.concat(
                F.lit(f"`{field.name}` isn't a {public_type(field.type)}: "),
                F.left(raw[field.name], F.lit(SHOWN)),
            ),
        )
        for field in fields
    ]
