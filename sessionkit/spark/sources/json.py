"""Payloads of JSON as columns, by Spark's own parser, and why one can't be read."""

import secrets
from collections.abc import Callable, Collection, Mapping
from functools import reduce
from operator import and_, or_
from typing import Final, TypeAlias, cast

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionkit._engine.wire.inbound import UNREADABLE_COLUMN
from sessionkit.spark._columns import quoted
from sessionkit.spark.sources.values import PAYLOAD, SHOWN, Json, ddl
from sessionkit.state._collections import AttrsType, DictType, Field, ListType, inner_type
from sessionkit.state._scalars import DecimalType, StrType
from sessionkit.state._times import DatetimeType
from sessionkit.state._types import FieldType

Judge: TypeAlias = Callable[[FieldType, Column], Column | None]
NAMED: Final = "map<string,string>"
TOO_MANY_SECONDS: Final = r"^-?(9\d{12}|\d{14,})$"
"""Spark multiplies them by a million, and keeps the last 64 bits."""
TIME_OF_DAY: Final = r"^T?\d{1,2}:"
"""Spark takes it for a time of the day on which the query runs."""
LONG_FRACTION: Final = r"\.\d{10}"
"""A number has it if a double can't tell it from one with fewer digits after the point."""
ODD_KEY: Final = r"^(\[|\{|true$|false$)"
NO_TEXT: Final = {"[": "array<string>", "{": NAMED, "t": "boolean", "f": "boolean"}
"""What begins so may be no text, but a value of this type, of which Spark makes one."""
WIDEST: Final = 37
"""One less than Spark has, so that it compares a decimal and a rounded one digit by digit."""
MORE_DIGITS: Final = 9
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
    faults = Faults(options)
    misread = [faults.of(field, is_key=field.name in keys) for field in fields]
    fault = F.coalesce(
        _not_one_object(),
        *misread,
        F.when(F.col(PARSED)[CORRUPT].isNotNull(), "its payload has a value of another type"),
        _half_surrogates(fields, read),
    )
    look = QuickLook(options)
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


def _is_clean(look: "QuickLook", fields: Collection[Field], keys: Collection[str]) -> Column:
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


@attrs.frozen
class Faults:
    """What is wrong with the values of an object, which is read with these options."""

    options: Mapping[str, str]

    def of(self, field: Field, *, is_key: bool) -> Column:
        """Return the reason why a field can't be read; null where it can."""
        kind, value = inner_type(field.type), _object()[field.name]
        found = [
            value.isNotNull() & F.col(PARSED)[field.name].isNull(),
            self._anywhere(self._is_another, kind, value),
            self._is_rounded(field.name, kind),
            self._is_no_text(field.name, value) if is_key and isinstance(kind, StrType) else None,
        ]
        text = F.concat(F.lit(f"`{field.name}` isn't a {kind.sql}: "), F.left(value, F.lit(SHOWN)))
        twice = F.size(F.filter(F.map_keys(_object()), lambda name: name == field.name)) > 1
        reason = F.when(twice, f"`{field.name}` comes twice")
        reason = reason.when(reduce(or_, [one for one in found if one is not None]), text)
        inside = self._anywhere(self._repeats, kind, value)
        return reason if inside is None else reason.when(inside, f"`{field.name}` has a name twice")

    def _anywhere(self, judge: Judge, kind: FieldType, value: Column) -> Column | None:
        """Return whether something holds of a value or a part of it; None where it never does."""
        kind = inner_type(kind)
        found = [judge(kind, value)]
        if isinstance(kind, AttrsType):
            parts = F.from_json(value, NAMED, self.options)
            found += [self._anywhere(judge, one.type, parts[one.name]) for one in kind.fields]
        if isinstance(kind, ListType):
            found.append(self._any(judge, kind.item, F.from_json(value, "array<string>")))
        if isinstance(kind, DictType):
            parts = F.from_json(value, NAMED, self.options)
            found.append(self._any(judge, kind.value, F.map_values(parts)))
        some = [one for one in found if one is not None]
        return reduce(or_, some) if some else None

    def _any(self, judge: Judge, kind: FieldType, values: Column) -> Column | None:
        if self._anywhere(judge, kind, F.lit("")) is None:
            return None
        return F.exists(values, lambda one: cast("Column", self._anywhere(judge, kind, one)))

    def _is_another(self, kind: FieldType, value: Column) -> Column | None:
        if isinstance(kind, DatetimeType) and "timestampFormat" not in self.options:
            return value.rlike(TOO_MANY_SECONDS) | value.rlike(TIME_OF_DAY)
        if isinstance(kind, DecimalType) and "locale" not in self.options:
            # Spark leaves commas out, wherever they are: "1,50" is 150.
            return value.contains(",")
        return None

    def _repeats(self, kind: FieldType, value: Column) -> Column | None:
        """Return whether an object has a name twice that is read."""
        if not isinstance(kind, AttrsType | DictType):
            return None
        names = F.map_keys(F.from_json(value, NAMED, self.options))
        if isinstance(kind, AttrsType):
            known = [field.name for field in kind.fields]
            names = F.filter(names, lambda name: name.isin(known))
        return F.size(names) > F.size(F.array_distinct(names))

    def _is_rounded(self, name: str, kind: FieldType) -> Column | None:
        """Return whether a decimal has digits that its type hasn't."""
        if not isinstance(kind, DecimalType) or kind.scale >= WIDEST:
            return None
        exact = self._as(name, f"decimal({WIDEST},{min(WIDEST, kind.scale + MORE_DIGITS)})")
        return exact != F.round(exact, kind.scale)

    def _is_no_text(self, name: str, value: Column) -> Column:
        others = [
            F.when(value.startswith(begin), self._as(name, kind).isNotNull())
            for begin, kind in NO_TEXT.items()
        ]
        return F.coalesce(*others, F.lit(False))  # noqa: FBT003 (a value)

    def _as(self, name: str, kind: str) -> Column:
        """Return a value as one of another type; null where it's none."""
        return F.from_json(_text(), f"{quoted(name)} {kind}", self.options)[name]


@attrs.frozen
class QuickLook:
    """
    Finds nearly all values without a fault at little cost; one with a fault is never among them.

    The object is read with these options.
    """

    options: Mapping[str, str]

    def may_have_fault(self, field: Field, *, is_key: bool) -> Column:
        """Return whether a field that Spark can parse may have a fault."""
        kind, text = inner_type(field.type), _object()[field.name]
        if isinstance(kind, StrType) and is_key:
            return _is(text.rlike(ODD_KEY))
        if isinstance(kind, DecimalType):
            # Spark makes text of a number by way of a double, so the text may have fewer digits.
            more = text.rlike(rf"[^\d.-]|\.\d{{{kind.scale + 1}}}")
            return _is(more | (text.isNotNull() & _text().rlike(LONG_FRACTION)))
        if isinstance(kind, DictType) and not self._shape(kind.value):
            return _is(has_twice(F.map_keys(F.col(PARSED)[field.name])))
        shape = self._shape(kind)
        return _is(self._is_odd(kind, self._read(text, shape))) if shape else F.lit(False)  # noqa: FBT003

    def _shape(self, kind: FieldType) -> str | None:
        """Return the type by which the text of a value is seen; None where it needn't be."""
        kind = inner_type(kind)
        if isinstance(kind, AttrsType):
            return NAMED
        if isinstance(kind, ListType):
            item = self._shape(kind.item)
            return item and f"array<{item}>"
        if isinstance(kind, DictType):
            return f"map<string,{self._shape(kind.value) or 'string'}>"
        if isinstance(kind, DatetimeType) and "timestampFormat" in self.options:
            return None
        return "string" if isinstance(kind, DatetimeType | DecimalType) else None

    def _read(self, text: Column, shape: str) -> Column:
        return text if shape == "string" else F.from_json(text, shape, self.options)

    def _is_odd(self, kind: FieldType, value: Column) -> Column:
        """Return whether a value, by its text, may have a fault."""
        kind = inner_type(kind)
        if isinstance(kind, ListType):
            return F.exists(value, lambda one: self._is_odd(kind.item, one))
        if isinstance(kind, DictType):
            twice = has_twice(F.map_keys(value))
            if not self._shape(kind.value):
                return twice
            return twice | F.exists(F.map_values(value), lambda one: self._is_odd(kind.value, one))
        if isinstance(kind, AttrsType):
            parts = [(field.type, field.name, self._shape(field.type)) for field in kind.fields]
            found = [
                _is(self._is_odd(part, self._read(value[name], shape)))
                for part, name, shape in parts
                if shape
            ]
            return reduce(or_, found, has_twice(F.map_keys(value)))
        if isinstance(kind, DecimalType):
            return value.contains(",")
        return value.rlike(TOO_MANY_SECONDS) | value.rlike(TIME_OF_DAY)


def has_twice(names: Column) -> Column:
    """Return whether an array has a text twice."""
    return F.array_size(names) > F.array_size(F.array_distinct(names))


def _is(condition: Column) -> Column:
    """Return a condition that's false where it would be null."""
    return F.coalesce(condition, F.lit(False))  # noqa: FBT003 (a value)
