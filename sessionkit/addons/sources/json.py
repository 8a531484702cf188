"""Decode JSON payloads into columns by Spark's parser, with the reason if one can't be read."""

from collections.abc import Callable, Collection
from functools import reduce
from operator import and_
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionkit._for_addons import quoted
from sessionkit.addons.sources.json_values import (
    NAMED,
    NONCE,
    PARSED,
    Faults,
    has_twice,
    holds,
    marked,
    payload_text,
)
from sessionkit.addons.sources.values import PAYLOAD, UNREADABLE, Json, ddl

CORRUPT: Final = "_corrupt"
RAW: Final = "_raw"
END: Final = "end"
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
"""Valid JSON that Spark's parser refuses, besides more than `LEVELS` levels."""


def with_json(
    raw: DataFrame, payload: Json, fields: Collection[pa.Field], keys: Collection[str] = ()
) -> DataFrame:
    """
    Add the fields of the payloads as columns, and the reasons for unreadable payloads.

    Spark's parser silently reads some payloads as another value. Finding them takes several more
    parses, so a quick check first selects the few payloads that need them.
    """
    options = {"maxStringLen": str(payload.max_bytes), **payload.options, "mode": "PERMISSIVE"}
    schema = ", ".join(filter(None, [ddl(fields), f"{CORRUPT} string"]))
    with_corrupt = {**options, "columnNameOfCorruptRecord": CORRUPT}

    def read(text: Column) -> Column:
        return F.from_json(text, schema, with_corrupt)

    # Spark ignores everything after the first value of a text. So the text is also parsed as the
    # first item of an array, followed by a value that no payload can guess.
    followed = F.concat(F.lit("["), payload_text(), F.lit(f',{{"{END}":"{NONCE}"}}]'))
    parsed = raw.withColumn(PARSED, read(payload_text())).withColumn(
        RAW, F.from_json(followed, OBJECTS, options)
    )
    columns = [F.col(f"{PARSED}.{quoted(field.name)}").alias(field.name) for field in fields]
    columns_before = [name for name in raw.columns if name != UNREADABLE]
    faults = Faults(options, _object())

    def of_fields(exact: Column) -> Column:
        return F.coalesce(*(faults.of(field, exact, is_key=field.name in keys) for field in fields))

    # In a lambda, the marked payload is parsed once for all fields.
    exact = F.array(F.from_json(marked(), NAMED, options))
    fault = F.coalesce(
        _not_one_object(),
        F.get(F.transform(exact, of_fields), F.lit(0)) if fields else F.lit(None).cast("string"),
        F.when(F.col(PARSED)[CORRUPT].isNotNull(), "its payload has a value of another type"),
        _half_surrogates(fields, read),
    )
    may_have_fault = [faults.may_be_in(field, is_key=field.name in keys) for field in fields]
    reason = F.coalesce(F.col(UNREADABLE), _not_text(), F.when(~_is_clean(may_have_fault), fault))
    return parsed.select(*columns, *columns_before, reason.alias(UNREADABLE))


def _object() -> Column:
    """Return the values of the payload as text by name; a repeated name occurs twice."""
    return F.get(F.col(RAW), F.lit(0))


def _is_one_object() -> Column:
    ends = F.get(F.col(RAW), F.lit(1))[END] == NONCE
    return _object().isNotNull() & holds(ends)


def _is_clean(may_have_fault: Collection[Column]) -> Column:
    """Return whether a payload is certainly one object without a fault."""
    certain = [
        F.col(PARSED)[CORRUPT].isNull(),
        ~payload_text().contains("\\u") | ~payload_text().rlike(SURROGATE),
        ~has_twice(F.map_keys(_object())),
        *(~fault for fault in may_have_fault),
    ]
    return _is_one_object() & holds(reduce(and_, certain))


def _not_text() -> Column:
    """Return why a payload isn't text; null if it is."""
    return (
        F.when(F.col(PAYLOAD).isNull(), "its payload is null")
        # Spark replaces bytes that aren't UTF-8 by a question mark.
        .when(F.encode(payload_text(), "UTF-8") != F.col(PAYLOAD), "its payload isn't UTF-8")
    )


def _not_one_object() -> Column:
    """Return why a payload isn't one object; null if it is."""
    brackets = F.length(F.regexp_replace(payload_text(), r"[^\[{]", ""))
    beyond = F.when(brackets >= LEVELS, f"{ONE_OBJECT} of at most {LEVELS} levels")
    for pattern, what in BEYOND.items():
        beyond = beyond.when(payload_text().rlike(pattern), f"{ONE_OBJECT}, or has {what}")
    return F.when(~_is_one_object(), F.coalesce(beyond, F.lit(ONE_OBJECT)))


def _half_surrogates(fields: Collection[pa.Field], read: Callable[[Column], Column]) -> Column:
    """
    Return the reason for the first field with half a surrogate pair; null if there is none.

    UTF-8 can't encode such a half, and Spark replaces it by a question mark.
    """
    # Escaped backslashes first, so that each `\u` left is an escape.
    plain = F.regexp_replace(payload_text(), r"\\\\", r"\\u005c")
    without = read(F.regexp_replace(plain, PAIR_OR_HALF, "$1"))
    faults = [
        F.when(
            ~F.col(PARSED)[name].cast("string").eqNullSafe(without[name].cast("string")),
            f"`{name}` has half a surrogate pair, which no text has",
        )
        for name in (field.name for field in fields)
    ]
    return F.when(payload_text().rlike(SURROGATE), F.coalesce(*faults, F.lit(None).cast("string")))
