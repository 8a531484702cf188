"""Payloads of JSON as columns, by Spark's own parser, and why one can't be read."""

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
"""Spark multiplies them by a million, and keeps the last 64 bits."""
TIME_OF_DAY: Final = r"^T?\d{1,2}:"
"""Spark takes it for a time of the day on which the query runs."""
LONG_FRACTION: Final = r"\.\d{10}"
"""A number with it may be the same double as one with fewer digits after the point."""
ODD_KEY: Final = r"^(\[|\{|true$|false$)"
NO_TEXT: Final = {"[": "array<string>", "{": NAMED, "t": "boolean", "f": "boolean"}
"""A value that begins so may have this type, and Spark makes a text of it."""
WIDEST: Final = 37
"""One less than Spark has, so that it compares a decimal and a rounded one digit by digit."""
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
"""What Spark's parser refuses, though it's JSON, in addition to more than so many levels."""


def with_json(
    raw: DataFrame, payload: Json, fields: Collection[pa.Field], keys: Collection[str] = ()
) -> DataFrame:
    """
    Return rows with the fields of their payload, and the reason why it can't be read.

    Spark's parser reads some payloads as another value without an error. Finding them takes several
    more parses, so a quick check decides first which payloads need them: few do.
    """
    options = {"maxStringLen": str(payload.max_bytes), **payload.options, "mode": "PERMISSIVE"}
    schema = ", ".join(filter(None, [ddl(fields), f"{CORRUPT} string"]))
    with_corrupt = {**options, "columnNameOfCorruptRecord": CORRUPT}

    def read(text: Column) -> Column:
        return F.from_json(text, schema, with_corrupt)

    # Spark reads the first value of a text and ignores what follows it. So the text is also parsed
    # as an array, before a value that no payload can guess.
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
    """Return the values of the payload as text; a name that comes twice is there twice."""
    return F.get(F.col(RAW), F.lit(0))


def _is_one_object() -> Column:
    ends = F.get(F.col(RAW), F.lit(1))[END] == NONCE
    return _object().isNotNull() & _is(ends)


def _is_clean(may_have_fault: Collection[Column]) -> Column:
    """Return whether a payload is one object that surely has no fault."""
    certain = [
        F.col(PARSED)[CORRUPT].isNull(),
        ~_text().contains("\\u") | ~_text().rlike(SURROGATE),
        ~has_twice(F.map_keys(_object())),
        *(~one for one in may_have_fault),
    ]
    return _is_one_object() & _is(reduce(and_, certain))


def _not_text() -> Column:
    """Return why a payload isn't text; null where it is."""
    return (
        F.when(F.col(PAYLOAD).isNull(), "its payload is null")
        # Spark replaces what isn't UTF-8 by a question mark.
        .when(F.encode(_text(), "UTF-8") != F.col(PAYLOAD), "its payload isn't UTF-8")
    )


def _not_one_object() -> Column:
    """Return why a payload isn't one object; null where it is."""
    brackets = F.length(F.regexp_replace(_text(), r"[^\[{]", ""))
    beyond = F.when(brackets >= LEVELS, f"{ONE_OBJECT} of at most {LEVELS} levels")
    for pattern, what in BEYOND.items():
        beyond = beyond.when(_text().rlike(pattern), f"{ONE_OBJECT}, or has {what}")
    return F.when(~_is_one_object(), F.coalesce(beyond, F.lit(ONE_OBJECT)))


def _half_surrogates(fields: Collection[pa.Field], read: Callable[[Column], Column]) -> Column:
    """
    Return the reason for the first field with half a surrogate pair; null where there is none.

    UTF-8 has no such half, and Spark replaces it by a question mark.
    """
    # From here on, a backslash before a `u` doesn't itself follow one.
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
    """What is wrong with the values of an object, which is read with these options."""

    options: Mapping[str, str]

    def may_be_in(self, field: pa.Field, *, is_key: bool) -> Column:
        """Return whether a field that Spark can parse may have a fault: the quick check."""
        kind, text = field.type, _object()[field.name]
        if pa.types.is_string(kind):
            return _is(text.rlike(ODD_KEY)) if is_key else F.lit(False)  # noqa: FBT003
        if pa.types.is_decimal(kind):
            # Spark makes text of a number by way of a double, so the text may have fewer digits.
            more = text.rlike(rf"[^\d.-]|\.\d{{{kind.scale + 1}}}")
            return _is(more | (text.isNotNull() & _text().rlike(LONG_FRACTION)))
        if pa.types.is_map(kind) and not self._shape(kind.item_type):
            return _is(has_twice(F.map_keys(F.col(PARSED)[field.name])))
        return _is(self._anywhere(self._is_misread, kind, self._read(text, kind)))

    def of(self, field: pa.Field, *, is_key: bool) -> Column:
        """Return the reason why a field can't be read; null where it can."""
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
        """Return the type by which the text of a value is seen; None where it needn't be."""
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
        """Return the value of a text in its shape."""
        shape = self._shape(kind)
        return text if shape in {None, "string"} else F.from_json(text, shape, self.options)

    def _anywhere(self, judge: Judge, kind: pa.DataType, value: Column) -> Column | None:
        """Return whether something holds of a value or a part of it; None where it never does."""
        judged = [judge(kind, value)]
        if pa.types.is_struct(kind):
            parts = [(one.type, self._read(value[one.name], one.type)) for one in kind]
            judged += [self._anywhere(judge, *part) for part in parts]
        if pa.types.is_list(kind):
            judged.append(self._any(judge, kind.value_type, value))
        if pa.types.is_map(kind):
            judged.append(self._any(judge, kind.item_type, F.map_values(value)))
        return _either(*judged)

    def _any(self, judge: Judge, kind: pa.DataType, values: Column) -> Column | None:
        if self._anywhere(judge, kind, F.lit("")) is None:
            return None
        return F.exists(values, lambda one: cast("Column", self._anywhere(judge, kind, one)))

    def _is_misread(self, kind: pa.DataType, value: Column) -> Column | None:
        return _either(self._is_another(kind, value), self._repeats(kind, value))

    def _is_another(self, kind: pa.DataType, value: Column) -> Column | None:
        """Return whether Spark reads another time or number from a text."""
        if pa.types.is_timestamp(kind) and "timestampFormat" not in self.options:
            return value.rlike(TOO_MANY_SECONDS) | value.rlike(TIME_OF_DAY)
        if pa.types.is_decimal(kind) and "locale" not in self.options:
            # Spark leaves commas out, wherever they are: "1,50" is 150.
            return value.contains(",")
        return None

    def _repeats(self, kind: pa.DataType, value: Column) -> Column | None:
        """Return whether an object has a name twice that is read."""
        if pa.types.is_map(kind):
            return has_twice(F.map_keys(value))
        if pa.types.is_struct(kind):
            names = [field.name for field in kind]
            return has_twice(F.filter(F.map_keys(value), lambda name: name.isin(names)))
        return None

    def _is_rounded(self, name: str, kind: pa.DataType) -> Column | None:
        """Return whether a decimal has digits that its type hasn't."""
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
        """Return a value as one of another type; null where it isn't."""
        return F.from_json(_text(), f"{quoted(name)} {kind}", self.options)[name]


def has_twice(names: Column) -> Column:
    return F.array_size(names) > F.array_size(F.array_distinct(names))


def _either(*conditions: Column | None) -> Column | None:
    """Return whether one of the conditions holds; None where there is none."""
    there = [condition for condition in conditions if condition is not None]
    return reduce(or_, there) if there else None


def _is(condition: Column | None) -> Column:
    """Return a condition that's false where it would be null."""
    return F.lit(False) if condition is None else F.coalesce(condition, F.lit(False))  # noqa: FBT003
