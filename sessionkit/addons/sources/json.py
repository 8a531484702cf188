"""Decode JSON payloads into columns by Spark's parser, with the reason if one can't be read."""

import secrets
from collections.abc import Callable, Collection, Mapping
from functools import reduce
from operator import and_, or_
from typing import Final, TypeAlias, cast

import attrs
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionkit._for_addons import quoted
from sessionkit.addons.sources.values import PAYLOAD, SHOWN, UNREADABLE, Json, ddl, shown

Judge: TypeAlias = Callable[[pa.DataType, Column], Column | None]
NAMED: Final = "map<string,string>"
TOO_MANY_SECONDS: Final = r"^-?(9\d{12}|\d{14,})$"
"""Spark multiplies the seconds by a million, and keeps the last 64 bits."""
TIME_OF_DAY: Final = r"^T?\d{1,2}:"
"""Spark reads it as a time on the day on which the query runs."""
LONG_FRACTION: Final = r"\.\d{10}"
"""Such a number may be the same double as a number with fewer decimals."""
ODD_KEY: Final = r"^(\[|\{|true$|false$)"
NO_TEXT: Final = {"[": "array<string>", "{": NAMED, "t": "boolean", "f": "boolean"}
"""The types, by first letter, of values that Spark turns into text."""
WIDEST: Final = 37
"""One digit less than Spark's maximum, so that a decimal compares exactly with its rounding."""
MORE_DIGITS: Final = 9
CORRUPT: Final = "_corrupt"
PARSED: Final = "_parsed"
RAW: Final = "_raw"
END: Final = "end"
NONCE: Final = secrets.token_hex()
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
    followed = F.concat(F.lit("["), _text(), F.lit(f',{{"{END}":"{NONCE}"}}]'))
    parsed = raw.withColumn(PARSED, read(_text())).withColumn(
        RAW, F.from_json(followed, OBJECTS, options)
    )
    columns = [F.col(f"{PARSED}.{quoted(field.name)}").alias(field.name) for field in fields]
    columns_before = [name for name in raw.columns if name != UNREADABLE]
    faults = Faults(options)
    fault = F.coalesce(
        _not_one_object(),
        *(faults.of(field, is_key=field.name in keys) for field in fields),
        F.when(F.col(PARSED)[CORRUPT].isNotNull(), "its payload has a value of another type"),
        _half_surrogates(fields, read),
    )
    may_have_fault = [faults.may_be_in(field, is_key=field.name in keys) for field in fields]
    reason = F.coalesce(F.col(UNREADABLE), _not_text(), F.when(~_is_clean(may_have_fault), fault))
    return parsed.select(*columns, *columns_before, reason.alias(UNREADABLE))


def _text() -> Column:
    return F.col(PAYLOAD).cast("string")


def _object() -> Column:
    """Return the values of the payload as text by name; a repeated name occurs twice."""
    return F.get(F.col(RAW), F.lit(0))


def _is_one_object() -> Column:
    ends = F.get(F.col(RAW), F.lit(1))[END] == NONCE
    return _object().isNotNull() & _is(ends)


def _is_clean(may_have_fault: Collection[Column]) -> Column:
    """Return whether a payload is certainly one object without a fault."""
    certain = [
        F.col(PARSED)[CORRUPT].isNull(),
        ~_text().contains("\\u") | ~_text().rlike(SURROGATE),
        ~has_twice(F.map_keys(_object())),
        *(~fault for fault in may_have_fault),
    ]
    return _is_one_object() & _is(reduce(and_, certain))


def _not_text() -> Column:
    """Return why a payload isn't text; null if it is."""
    return (
        F.when(F.col(PAYLOAD).isNull(), "its payload is null")
        # Spark replaces bytes that aren't UTF-8 by a question mark.
        .when(F.encode(_text(), "UTF-8") != F.col(PAYLOAD), "its payload isn't UTF-8")
    )


def _not_one_object() -> Column:
    """Return why a payload isn't one object; null if it is."""
    brackets = F.length(F.regexp_replace(_text(), r"[^\[{]", ""))
    beyond = F.when(brackets >= LEVELS, f"{ONE_OBJECT} of at most {LEVELS} levels")
    for pattern, what in BEYOND.items():
        beyond = beyond.when(_text().rlike(pattern), f"{ONE_OBJECT}, or has {what}")
    return F.when(~_is_one_object(), F.coalesce(beyond, F.lit(ONE_OBJECT)))


def _half_surrogates(fields: Collection[pa.Field], read: Callable[[Column], Column]) -> Column:
    """
    Return the reason for the first field with half a surrogate pair; null if there is none.

    UTF-8 can't encode such a half, and Spark replaces it by a question mark.
    """
    # Escaped backslashes first, so that each `\u` left is an escape.
    plain = F.regexp_replace(_text(), r"\\\\", r"\\u005c")
    without = read(F.regexp_replace(plain, PAIR_OR_HALF, "$1"))
    faults = [
        F.when(
            ~F.col(PARSED)[name].cast("string").eqNullSafe(without[name].cast("string")),
            f"`{name}` has half a surrogate pair, which no text has",
        )
        for name in (field.name for field in fields)
    ]
    return F.when(_text().rlike(SURROGATE), F.coalesce(*faults, F.lit(None).cast("string")))


@attrs.frozen
class Faults:
    """The faults of an object's values, read with these options."""

    options: Mapping[str, str]

    def may_be_in(self, field: pa.Field, *, is_key: bool) -> Column:
        """Return whether a field that Spark has parsed may have a fault: the quick check."""
        kind, text = field.type, _object()[field.name]
        if pa.types.is_string(kind):
            return _is(text.rlike(ODD_KEY)) if is_key else F.lit(False)  # noqa: FBT003
        if pa.types.is_decimal(kind):
            # Spark turns a number into text by way of a double, which may lose digits.
            more = text.rlike(rf"[^\d.-]|\.\d{{{kind.scale + 1}}}")
            return _is(more | (text.isNotNull() & _text().rlike(LONG_FRACTION)))
        if pa.types.is_map(kind) and not self._shape(kind.item_type):
            return _is(has_twice(F.map_keys(F.col(PARSED)[field.name])))
        return _is(self._anywhere(self._is_misread, kind, self._read(text, kind)))

    def of(self, field: pa.Field, *, is_key: bool) -> Column:
        """Return the reason why a field can't be read; null if it can."""
        kind, text = field.type, _object()[field.name]
        value = self._read(text, kind)
        faults = [
            text.isNotNull() & F.col(PARSED)[field.name].isNull(),
            self._anywhere(self._is_another, kind, value),
            self._is_rounded(field.name, kind),
            self._is_no_text(field.name, text) if is_key and pa.types.is_string(kind) else None,
        ]
        start = F.lit(f"`{field.name}` isn't a {shown(kind)}: ")
        text_shown = F.concat(start, F.left(text, F.lit(SHOWN)))
        twice = F.size(F.filter(F.map_keys(_object()), lambda name: name == field.name)) > 1
        return (
            F.when(twice, f"`{field.name}` comes twice")
            .when(_is(_either(*faults)), text_shown)
            .when(
                _is(self._anywhere(self._repeats, kind, value)), f"`{field.name}` has a name twice"
            )
        )

    def _shape(self, kind: pa.DataType) -> str | None:
        """Return the type with which to parse a value as text; None if it needs no check."""
        if pa.types.is_struct(kind):
            return NAMED
        if pa.types.is_list(kind):
            item = self._shape(kind.value_type)
            return item and f"array<{item}>"
        if pa.types.is_map(kind):
            return f"map<string,{self._shape(kind.item_type) or 'string'}>"
        is_time = pa.types.is_timestamp(kind) and "timestampFormat" not in self.options
        return "string" if is_time or pa.types.is_decimal(kind) else None

    def _read(self, text: Column, kind: pa.DataType) -> Column:
        """Return a text, parsed with its shape."""
        shape = self._shape(kind)
        return text if shape in {None, "string"} else F.from_json(text, shape, self.options)

    def _anywhere(self, judge: Judge, kind: pa.DataType, value: Column) -> Column | None:
        """Return whether a condition holds for a value or a part of it; None if it can't."""
        judged = [judge(kind, value)]
        if pa.types.is_struct(kind):
            parts = [(part.type, self._read(value[part.name], part.type)) for part in kind]
            judged += [self._anywhere(judge, *part) for part in parts]
        if pa.types.is_list(kind):
            judged.append(self._any(judge, kind.value_type, value))
        if pa.types.is_map(kind):
            judged.append(self._any(judge, kind.item_type, F.map_values(value)))
        return _either(*judged)

    def _any(self, judge: Judge, kind: pa.DataType, values: Column) -> Column | None:
        if self._anywhere(judge, kind, F.lit("")) is None:
            return None
        return F.exists(values, lambda value: cast("Column", self._anywhere(judge, kind, value)))

    def _is_misread(self, kind: pa.DataType, value: Column) -> Column | None:
        return _either(self._is_another(kind, value), self._repeats(kind, value))

    def _is_another(self, kind: pa.DataType, value: Column) -> Column | None:
        """Return whether Spark misreads the time or number in a text."""
        if pa.types.is_timestamp(kind) and "timestampFormat" not in self.options:
            return value.rlike(TOO_MANY_SECONDS) | value.rlike(TIME_OF_DAY)
        if pa.types.is_decimal(kind) and "locale" not in self.options:
            # Spark ignores commas anywhere: "1,50" is 150.
            return value.contains(",")
        return None

    def _repeats(self, kind: pa.DataType, value: Column) -> Column | None:
        """Return whether an object has a name twice, among the names that are read."""
        if pa.types.is_map(kind):
            return has_twice(F.map_keys(value))
        if pa.types.is_struct(kind):
            names = [field.name for field in kind]
            return has_twice(F.filter(F.map_keys(value), lambda name: name.isin(names)))
        return None

    def _is_rounded(self, name: str, kind: pa.DataType) -> Column | None:
        """Return whether a decimal has more decimals than its type."""
        if not pa.types.is_decimal(kind) or kind.scale >= WIDEST:
            return None
        exact = self._as(name, f"decimal({WIDEST},{min(WIDEST, kind.scale + MORE_DIGITS)})")
        return exact != F.round(exact, kind.scale)

    def _is_no_text(self, name: str, value: Column) -> Column:
        judged = [
            F.when(value.startswith(begin), self._as(name, kind).isNotNull())
            for begin, kind in NO_TEXT.items()
        ]
        return F.coalesce(*judged, F.lit(False))  # noqa: FBT003 (a value)

    def _as(self, name: str, kind: str) -> Column:
        """Return a field, parsed as another type; null if it isn't of the type."""
        return F.from_json(_text(), f"{quoted(name)} {kind}", self.options)[name]


def has_twice(names: Column) -> Column:
    return F.array_size(names) > F.array_size(F.array_distinct(names))


def _either(*conditions: Column | None) -> Column | None:
    """Return whether a condition holds; None if there are no conditions."""
    possible = [condition for condition in conditions if condition is not None]
    return reduce(or_, possible) if possible else None


def _is(condition: Column | None) -> Column:
    """Return a condition with null replaced by false."""
    return F.lit(False) if condition is None else F.coalesce(condition, F.lit(False))  # noqa: FBT003
