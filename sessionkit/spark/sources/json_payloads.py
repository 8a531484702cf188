"""Payloads of JSON as columns, by Spark's own parser, and why one can't be read."""

import secrets
from collections.abc import Callable, Collection
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionkit._engine.wire.columns import UNREADABLE_COLUMN
from sessionkit.spark._columns import quoted
from sessionkit.spark.sources.columns import ddl
from sessionkit.spark.sources.json_faults import Faults, QuickLook, has_twice
from sessionkit.spark.sources.payloads import Json
from sessionkit.spark.sources.values import PAYLOAD
from sessionkit.state import Field

__all__ = ["with_json"]

CORRUPT: Final = "_corrupt"
PARSED: Final = "_parsed"
RAW: Final = "_raw"
SEAL: Final = "seal"
SECRET: Final = secrets.token_hex()
OBJECTS: Final = "array<map<string,string>>"
ONE_OBJECT: Final = "its payload isn't one JSON object"
SURROGATE: Final = r"\\u[dD][89a-fA-F]"
PAIR_OR_HALF: Final = (
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
LEVELS: Final = 1_000
BEYOND: Final = {
    r"[0-9]{1001}": "a number of more than 1000 digits",
    r'"[^"]{50001}': "a name of more than 50000 letters",
}
"""What Spark's parser refuses, though it's JSON, besides more than so many levels."""


def with_json(
    raw: DataFrame, payload: Json, fields: Collection[Field], keys: Collection[str] = ()
) -> DataFrame:
    """
    Return rows with the fields of their payload, and the reason why it can't be read.

    Spark's parser reads some payloads as another value without an error. To find that out takes
    several more parses, so a quick look decides first which payloads need them: few do.

    Args:
        raw: Rows with a column `payload` of bytes, and the reasons that are known already.
        payload: How it is read.
        fields: The columns that it has.
        keys: The names of those that are the key.
    """
    options = {"maxStringLen": str(payload.max_bytes), **payload.options, "mode": "PERMISSIVE"}
    schema = ", ".join(filter(None, [ddl(fields), f"{CORRUPT} string"]))
    whole = {**options, "columnNameOfCorruptRecord": CORRUPT}

    def read(text: Column) -> Column:
        return F.from_json(text, schema, whole)

    # Spark reads the first value of a text, and ignores what follows it. So what follows is looked
    # for, by a value that no payload can have foreseen.
    sealed = F.concat(F.lit("["), _text(), F.lit(f',{{"{SEAL}":"{SECRET}"}}]'))
    parsed = raw.withColumn(PARSED, read(_text())).withColumn(
        RAW, F.from_json(sealed, OBJECTS, options)
    )
    columns = [F.col(f"{PARSED}.{quoted(field.name)}").alias(field.name) for field in fields]
    others = [name for name in raw.columns if name != UNREADABLE_COLUMN]
    faults = Faults(_text(), _object(), F.col(PARSED), options)
    misread = [faults.of(field, is_key=field.name in keys) for field in fields]
    fault = F.coalesce(
        _not_one_object(),
        *misread,
        F.when(F.col(PARSED)[CORRUPT].isNotNull(), "its payload has a value of another type"),
        _half_surrogates(fields, read),
    )
    look = QuickLook(_text(), _object(), F.col(PARSED), options)
    reason = F.coalesce(
        F.col(UNREADABLE_COLUMN), _not_text(), F.when(~_is_clean(look, fields, keys), fault)
    )
    return parsed.select(*columns, *others, reason.alias(UNREADABLE_COLUMN))


def _text() -> Column:
    return F.col(PAYLOAD).cast("string")


def _object() -> Column:
    """Return the values of the payload as text; a name that comes twice is there twice."""
    return F.get(F.col(RAW), F.lit(0))


def _is_one_object() -> Column:
    followed = F.get(F.col(RAW), F.lit(1))[SEAL] == SECRET
    return _object().isNotNull() & F.coalesce(followed, F.lit(False))  # noqa: FBT003 (a value)


def _is_clean(look: QuickLook, fields: Collection[Field], keys: Collection[str]) -> Column:
    """Return whether a payload is one object that surely has no fault."""
    certain = [
        F.col(PARSED)[CORRUPT].isNull(),
        ~_text().contains("\\u") | ~_text().rlike(SURROGATE),
        ~has_twice(F.map_keys(_object())),
        *(~look.may_have_fault(field, is_key=field.name in keys) for field in fields),
    ]
    return _is_one_object() & F.coalesce(reduce(and_, certain), F.lit(False))  # noqa: FBT003


def _not_text() -> Column:
    """Return why a payload isn't text; null where it is."""
    return (
        F.when(F.col(PAYLOAD).isNull(), "its payload is null")
        # Spark puts a question mark in place of what isn't UTF-8.
        .when(F.encode(_text(), "UTF-8") != F.col(PAYLOAD), "its payload isn't UTF-8")
    )


def _not_one_object() -> Column:
    """Return why a payload isn't one object; null where it is."""
    brackets = F.length(F.regexp_replace(_text(), r"[^\[{]", ""))
    beyond = F.when(brackets >= LEVELS, f"{ONE_OBJECT} of at most {LEVELS} levels")
    for pattern, what in BEYOND.items():
        beyond = beyond.when(_text().rlike(pattern), f"{ONE_OBJECT}, or has {what}")
    return F.when(~_is_one_object(), F.coalesce(beyond, F.lit(ONE_OBJECT)))


def _half_surrogates(fields: Collection[Field], read: Callable[[Column], Column]) -> Column:
    """
    Return the first field that is another one without halves of surrogate pairs; else null.

    Spark puts a question mark in place of each half, which no UTF-8 has.
    """
    # From here on, a backslash before a `u` isn't itself behind one.
    plain = F.regexp_replace(_text(), r"\\\\", r"\\u005c")
    without = read(F.regexp_replace(plain, PAIR_OR_HALF, "$1"))
    found = [
        F.when(
            ~F.col(PARSED)[field.name]
            .cast("string")
            .eqNullSafe(without[field.name].cast("string")),
            f"`{field.name}` has half a surrogate pair, which no text has",
        )
        for field in fields
    ]
    return F.when(_text().rlike(SURROGATE), F.coalesce(*found, F.lit(None).cast("string")))
