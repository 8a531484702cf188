"""
The values of JSON objects that Spark's parser reads as other values, and their reasons.

The parser keeps the text of a string, but turns a number into text by way of a double. So a quick
check of that text first selects the payloads that may have a fault. Then the payload is parsed
again with its numbers as strings behind a mark, which keeps every digit.
"""

import json
import secrets
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Final, TypeAlias, cast

import attrs
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from sessionkit._for_addons import quoted
from sessionkit.addons.sources.values import PAYLOAD, SHOWN, spark_type_name

Judge: TypeAlias = Callable[[pa.DataType, Column], Column | None]
NAMED: Final = "map<string,string>"
PARSED: Final = "_parsed"
NONCE: Final = secrets.token_hex()
MARK: Final = NONCE[:12]
"""Precedes each number, or `NaN`, that became a string; no payload can guess it."""

NOT_FINITE: Final = r"NaN|INF|Infinity"
NUMBER: Final = rf"-?\d[\d.eE+-]*+|[+-]?(?:{NOT_FINITE})\b"
NO_NUMBER: Final = (
    r"(?:[^\"'\w+-]|\"(?:[^\"\\]++|\\.)*+\"|'(?:[^'\\]++|\\.)*+'"
    rf"|(?!(?:{NOT_FINITE})\b)[A-Za-z_][\w$]*+|[+-](?!\d|{NOT_FINITE}))*+"
)
"""Strings, names and signs of JSON. The possessive quantifiers need no stack."""

ROUNDED: Final = (
    r"[\[,:]\s*-?(?:\d+\.\d+0(?!\d)|\d[\d.]*[eE]|\d{8,}\.|0\.000|0(?![\d.])|0\d|\d[\d.]{16}|[NI])"
)
"""Finds every number in a payload whose digits may change by way of a double, and some others."""
SOME_NUMBER: Final = r"(?:-?\d+\.\d|\"?-?[NI]|0(?:$|[,\]}]))"
WHOLE: Final = r"^(?:0|-?[1-9]\d*)$"
FINITE: Final = r"^-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?$"
TINY: Final = r"\d[eE]-\d{3}|0{300}"
NOT_ZERO: Final = r"^[^eE]*[1-9]"
LONG_FRACTION: Final = r"\.\d{9}"
"""Such a number may be the same double as a number with fewer decimals."""
TOO_MANY_SECONDS: Final = r"^-?(?:9\d{12}|\d{14,})$"
"""Spark multiplies the seconds by a million, and keeps the last 64 bits."""
DAY: Final = r"(?!0000)\d{4}-\d{1,2}-\d{1,2}"
"""Spark would also read a year alone, and a number of days; and ignore all that follows a date."""
PLAIN_DAY: Final = r"^\d{4}-\d\d-\d\d$"
HOURS: Final = r"[T ]\d{1,2}(?::\d{1,2}(?::\d{1,2}(?:\.\d{0,6}0*)?)?)?"
TIME: Final = rf"^\s*{DAY}(?:{HOURS}(?:[^\d.:].*)?)?\s*$"
PLAIN_TIME: Final = r"^(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Z+-].*)?|-?\d{7,12})$"
BELOW_MICROS: Final = r"\.\d{6}0*[1-9]"
BASE64: Final = (
    r"^(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
)
ODD_END: Final = r"=[^=]|[^AQgw]==$|[^AEIMQUYcgkosw048=]=$"
NO_TEXT: Final = {"[": "array<string>", "{": NAMED, "t": "boolean", "f": "boolean"}
"""The types, by first letter, of values that Spark turns into text."""
WIDEST: Final = 37
"""One digit less than Spark's maximum, so that a decimal compares exactly with its rounding."""
MORE_DIGITS: Final = 9


def payload_text() -> Column:
    return F.col(PAYLOAD).cast("string")


def marked() -> Column:
    """Return the payload with its numbers as marked strings."""
    pattern = rf"(?s)\G({NO_NUMBER})({NUMBER})"
    return F.regexp_replace(payload_text(), pattern, rf'$1"{MARK}$2"')


def _without_marks(text: Column) -> Column:
    """Return a part of the marked payload as it was."""
    return F.replace(F.regexp_replace(text, rf'"{MARK}([^"]*)"', "$1"), F.lit(MARK), F.lit(""))


@attrs.frozen
class Faults:
    """
    The faults of an object's values, read with these options.

    Attributes:
        options: The options of Spark's parser.
        texts: The values of the object as text by name.
    """

    options: Mapping[str, str]
    texts: Column

    def may_be_in(self, field: pa.Field, *, is_key: bool) -> Column:
        """Return whether a field that Spark has parsed may have a fault: the quick check."""
        kind, text, value = field.type, self.texts[field.name], F.col(PARSED)[field.name]
        changes = self._may_change(kind, value, text)
        if is_key and pa.types.is_string(kind):
            return holds(_either(changes, _is_nested(value), value.isin("true", "false")))
        if pa.types.is_map(kind) and not self._shape(kind.item_type):
            return holds(_either(changes, has_twice(F.map_keys(value))))
        if pa.types.is_struct(kind) and not any(self._shape(part.type) for part in kind):
            return holds(_either(changes, *(_is_named_twice(text, part.name) for part in kind)))
        misread = self._anywhere(self._may_be_fault, kind, self._read(text, kind))
        return holds(_either(changes, misread))

    def of(self, field: pa.Field, exact: Column, *, is_key: bool) -> Column:
        """
        Return the reason why a field can't be read; null if it can.

        Args:
            field: The field.
            exact: The values of the object as text by name, of the marked payload.
            is_key: Whether the field is a key.
        """
        name, kind, text = field.name, field.type, self.texts[field.name]
        value = self._read(exact[name], kind, in_full=True)
        faults = [
            text.isNotNull() & (F.col(PARSED)[name].isNull() | exact[name].isNull()),
            self._anywhere(self._is_misread, kind, value, in_full=True),
            self._is_rounded(name, kind),
            self._is_no_text(name, text) if is_key and pa.types.is_string(kind) else None,
        ]
        start = F.lit(f"`{name}` isn't a {spark_type_name(kind)}: ")
        found = F.coalesce(_without_marks(exact[name]), text)
        text_shown = F.concat(start, F.left(found, F.lit(SHOWN)))
        twice = F.size(F.filter(F.map_keys(self.texts), lambda other: other == name)) > 1
        repeats = self._anywhere(self._repeats, kind, value, in_full=True)
        return (
            F.when(twice, f"`{name}` comes twice")
            .when(holds(_either(*faults)), text_shown)
            .when(holds(repeats), f"`{name}` has a name twice")
        )

    def _shape(self, kind: pa.DataType, *, in_full: bool = False) -> str | None:
        """Return the type with which to parse a value as text; None if its text is enough."""
        if pa.types.is_struct(kind):
            return NAMED
        if pa.types.is_list(kind):
            item = self._shape(kind.value_type, in_full=in_full)
            return item and f"array<{item}>"
        if pa.types.is_map(kind):
            return f"map<string,{self._shape(kind.item_type, in_full=in_full) or 'string'}>"
        # The quick check of these needs no text of an item.
        is_plain = kind in {pa.string(), pa.float64(), pa.int64(), pa.bool_()}
        return None if is_plain and not in_full else "string"

    def _read(self, text: Column, kind: pa.DataType, *, in_full: bool = False) -> Column:
        """Return a text, parsed with its shape."""
        shape = self._shape(kind, in_full=in_full)
        return text if shape in {None, "string"} else F.from_json(text, shape, self.options)

    def _anywhere(
        self, judge: Judge, kind: pa.DataType, value: Column, *, in_full: bool = False
    ) -> Column | None:
        """Return whether a condition holds for a value or a part of it; None if it can't."""
        judged = [judge(kind, value)]

        def any_of(part: pa.DataType, values: Column) -> Column | None:
            if self._anywhere(judge, part, F.lit(""), in_full=in_full) is None:
                return None
            return F.exists(
                values,
                lambda one: cast("Column", self._anywhere(judge, part, one, in_full=in_full)),
            )

        if pa.types.is_struct(kind):
            for part in kind:
                inner = self._read(value[part.name], part.type, in_full=in_full)
                judged.append(self._anywhere(judge, part.type, inner, in_full=in_full))
        if pa.types.is_list(kind) and self._shape(kind, in_full=in_full):
            judged.append(any_of(kind.value_type, value))
        if pa.types.is_map(kind):
            judged.append(any_of(kind.item_type, F.map_values(value)))
        return _either(*judged)

    def _may_change(
        self, kind: pa.DataType, value: Column, text: Column | None = None
    ) -> Column | None:
        """
        Return whether a text or a float in a parsed value may not be the one of the payload.

        The text of a list or map of them, if there is one, is searched faster than its items.
        """
        leaf = _leaf(kind) if text is not None else kind
        found = value if leaf == kind or text is None else text
        payload = payload_text()
        if pa.types.is_string(leaf):
            # Most texts don't begin as a number does: a comparison is faster than a pattern.
            begins = found.between("0", ":") | found.startswith("-") | found.startswith('"')
            has_number = begins & found.rlike(rf"^{SOME_NUMBER}")
            has_number |= _is_nested(found) & found.rlike(rf"[\[,:]{SOME_NUMBER}")
            return has_number & payload.rlike(ROUNDED)
        if pa.types.is_floating(leaf) and found is value:
            return ~(F.abs(value) < float("inf")) | ((value == 0) & payload.rlike(TINY))
        if pa.types.is_floating(leaf):
            is_zero = found.contains("0.0,") | found.contains("0.0]") | found.contains("0.0}")
            is_tiny = is_zero & payload.rlike(TINY)
            return found.contains("N") | found.contains("I") | is_tiny
        if pa.types.is_struct(kind):
            return _either(*(self._may_change(part.type, value[part.name]) for part in kind))
        if not (pa.types.is_list(kind) or pa.types.is_map(kind)):
            return None
        item = kind.value_type if pa.types.is_list(kind) else kind.item_type
        if self._may_change(item, value) is None:
            return None
        items = value if pa.types.is_list(kind) else F.map_values(value)
        return F.exists(items, lambda one: cast("Column", self._may_change(item, one)))

    def _may_be_fault(self, kind: pa.DataType, value: Column) -> Column | None:
        return _either(self._may_be_misread(kind, value), self._repeats(kind, value))

    def _may_be_misread(self, kind: pa.DataType, text: Column) -> Column | None:
        """Return whether Spark may misread the text of a value."""
        match kind:
            case _ if pa.types.is_decimal(kind):
                more = text.rlike(rf"[^\d.-]|\.\d{{{kind.scale + 1}}}")
                return more | (text.isNotNull() & payload_text().rlike(LONG_FRACTION))
            case _ if pa.types.is_timestamp(kind) and not self._has("timestampFormat"):
                return ~text.rlike(PLAIN_TIME)
            case _ if pa.types.is_date(kind) and not self._has("dateFormat"):
                return ~text.rlike(PLAIN_DAY)
            case _ if pa.types.is_duration(kind):
                return text.rlike(BELOW_MICROS)
            case _ if pa.types.is_binary(kind):
                return text.rlike(ODD_END)
        return None

    def _is_misread(self, kind: pa.DataType, value: Column) -> Column | None:
        """Return whether Spark misreads a value of the marked payload."""
        is_number = value.startswith(MARK)
        text = F.when(is_number, F.substring(value, len(MARK) + 1, 1_000_000)).otherwise(value)
        match kind:
            case _ if pa.types.is_floating(kind):
                return self._is_no_float(text)
            case _ if pa.types.is_string(kind):
                numbers = F.regexp_extract_all(value, F.lit(rf"{MARK}({NUMBER})"), F.lit(1))
                return F.exists(numbers, lambda number: ~_keeps_its_digits(number))
            case _ if pa.types.is_decimal(kind):
                is_no_decimal = ~_fits(text, kind.scale)
                return is_number & is_no_decimal if self._has("locale") else is_no_decimal
            case _ if pa.types.is_timestamp(kind) and not self._has("timestampFormat"):
                return F.when(is_number, text.rlike(TOO_MANY_SECONDS)).otherwise(~text.rlike(TIME))
            case _ if pa.types.is_date(kind) and not self._has("dateFormat"):
                return ~text.rlike(rf"^\s*{DAY}\s*$")
            case _ if pa.types.is_duration(kind):
                return text.rlike(BELOW_MICROS)
            case _ if pa.types.is_binary(kind):
                return ~text.rlike(BASE64)
        return None

    def _is_no_float(self, text: Column) -> Column:
        """Return whether a number is too large or too small for a double, or isn't one."""
        double = F.when(text.rlike(FINITE), text.cast("double"))
        is_kept = (F.abs(double) < float("inf")) & ((double != 0) | ~text.rlike(NOT_ZERO))
        if self._has("allowNonNumericNumbers", "true"):
            return ~F.coalesce(is_kept, F.lit(True))  # noqa: FBT003 (a value)
        return ~F.coalesce(is_kept, F.lit(False))  # noqa: FBT003 (a value)

    def _has(self, option: str, value: str | None = None) -> bool:
        """Return whether an option is set, as Spark finds it: in any case."""
        named = {name.lower(): str(value).lower() for name, value in self.options.items()}
        return option.lower() in named if value is None else named.get(option.lower()) == value

    def _repeats(self, kind: pa.DataType, value: Column) -> Column | None:
        """Return whether an object has a name twice, among the names that are read."""
        if pa.types.is_map(kind):
            return has_twice(F.map_keys(value))
        if pa.types.is_struct(kind):
            names = [field.name for field in kind]
            return has_twice(F.filter(F.map_keys(value), lambda name: name.isin(names)))
        return None

    def _is_rounded(self, name: str, kind: pa.DataType) -> Column | None:
        """Return whether a decimal that a locale writes has more decimals than its type."""
        if not (self._has("locale") and pa.types.is_decimal(kind)) or kind.scale >= WIDEST:
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
        return F.from_json(payload_text(), f"{quoted(name)} {kind}", self.options)[name]


def _is_named_twice(text: Column, name: str) -> Column:
    """Return whether a name occurs twice in the text of an object, which may be in its parts."""
    named = f"{json.dumps(name, ensure_ascii=False)}:"
    without = F.replace(text, F.lit(named), F.lit(""))
    return F.octet_length(text) - F.octet_length(without) > len(named.encode())


def _leaf(kind: pa.DataType) -> pa.DataType:
    """Return the type of the innermost items of lists and maps."""
    while pa.types.is_list(kind) or pa.types.is_map(kind):
        kind = kind.value_type if pa.types.is_list(kind) else kind.item_type
    return kind


def _is_nested(text: Column) -> Column:
    return text.startswith("[") | text.startswith("{")


def _keeps_its_digits(number: Column) -> Column:
    """Return whether a number is the same text by way of a double, as Spark turns it into one."""
    double = F.when(number.rlike(FINITE), number.cast("double")).cast("string")
    return number.rlike(WHOLE) | holds(number.rlike("[.eE]") & (double == number))


def _fits(text: Column, scale: int) -> Column:
    """Return whether a text is a number with so many decimals; an exponent moves the point."""
    exponent = F.regexp_extract(text, r"[eE]([+-]?\d{1,5})$", 1)
    decimals = F.length(F.regexp_extract(text, r"^[+-]?\d*\.?(\d*?)0*[eE]", 1))
    moved = F.when(exponent != "", decimals - exponent.cast("int") <= scale)
    is_zero = ~text.rlike(NOT_ZERO)
    plain = text.rlike(rf"^[+-]?\d*(?:\.\d{{0,{scale}}}0*)?$")
    return plain | (text.rlike(r"^[+-]?[\d.]+[eE]") & (is_zero | F.coalesce(moved, F.lit(False))))  # noqa: FBT003


def has_twice(names: Column) -> Column:
    return F.array_size(names) > F.array_size(F.array_distinct(names))


def _either(*conditions: Column | None) -> Column | None:
    """Return whether a condition holds; None if there are no conditions."""
    possible = [condition for condition in conditions if condition is not None]
    return reduce(or_, possible) if possible else None


def holds(condition: Column | None) -> Column:
    """Return a condition with null replaced by false."""
    return F.lit(False) if condition is None else F.coalesce(condition, F.lit(False))  # noqa: FBT003
