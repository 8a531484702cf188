"""
Literals by which a condition means something else than it says: None, NaN, a text as a list.

Arrow tells the literals of an expression where it pickles it, and the functions that take them in
its text alone, such as `((page == "/x") and (price != null[null]))`.
"""

import re
from collections.abc import Collection, Mapping
from math import isnan
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sessionkit.state._collections import inner_type
from sessionkit.state._derived import EnumType, LiteralType
from sessionkit.state._types import FieldType

TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
NONE: Final = re.compile(r"(?<!\w)null\[")
NAN: Final = re.compile(r"(?<!\w)nan(?!\w)")
IN: Final = re.compile(r"(?:is|index)_in\((.*?), \{value_set=")
LEFT: Final = re.compile(r"\((\w+) [=!<>]+ $")
WITH_NONE: Final = "compares with None, which gives null for every event: it selects none"
WITH_NAN: Final = "compares with NaN, which no value equals, not even NaN"
TAKES_NONE: Final = frozenset(
    {"coalesce", "if_else", "case_when", "choose", "max_element_wise", "min_element_wise"}
)
"""The functions that may give a value where an argument is null."""
TAKES_NAN: Final = TAKES_NONE | {"is_in", "index_in"}


def misleading(condition: pc.Expression, types: Mapping[str, FieldType]) -> tuple[str, str] | None:
    """
    Return why a condition can't mean what it says, and the hint; None where it can.

    `types` has the fields that it reads.
    """
    literals, values = _parts(condition)
    shown = TEXT.sub('""', str(condition))
    for is_there, literal, takes, found, hint in (
        (_is_none, NONE, TAKES_NONE, WITH_NONE, 'write pc.field("{0}").is_valid(), or .is_null()'),
        (_is_nan, NAN, TAKES_NAN, WITH_NAN, 'write pc.field("{0}").is_nan()'),
    ):
        place = _compared(shown, literal, takes) if any(map(is_there, literals)) else None
        if place is not None:
            left = LEFT.search(shown[:place])
            return found, hint.format(left[1] if left else next(iter(types), "page"))
    for name, chosen in zip(IN.findall(shown), values, strict=False):
        is_text = len(chosen) > 1 and all(value and len(value) == 1 for value in chosen)
        if is_text and not _has(types, name, chosen):
            what = f"chooses from {', '.join(map(repr, chosen))}, as with a text in place of a list"
            hint = f"write isin([{''.join(chosen)!r}])"
            return what, f"{hint}; or compare with == and | where you mean single characters"
    return None


def _parts(condition: pc.Expression) -> tuple[list[pa.Scalar], list[list[Any]]]:
    """Return the literals of an expression, and the texts from which `isin` chooses, in order."""
    (pickled,) = condition.__reduce__()[1]
    literals, values = list[pa.Scalar](), list[list[Any]]()
    for column in pa.ipc.open_file(pickled).get_batch(0).columns:
        fields = [*column.type] if pa.types.is_struct(column.type) else []
        if "_type_name" not in {field.name for field in fields}:
            literals.append(column[0])
        elif "value_set" in {field.name for field in fields}:
            chosen = column.field("value_set")
            # Whoever writes large_string means the characters.
            values.append(chosen[0].as_py() if pa.types.is_string(chosen.type.value_type) else [])
    return literals, values


def _is_none(literal: pa.Scalar) -> bool:
    return not literal.is_valid


def _is_nan(literal: pa.Scalar) -> bool:
    return pa.types.is_floating(literal.type) and literal.is_valid and isnan(literal.as_py())


def _compared(shown: str, literal: re.Pattern[str], takes: Collection[str]) -> int | None:
    """Return the place of a literal that is an argument of a function that makes nothing of it."""
    places = (found.start() for found in literal.finditer(shown))
    return next((place for place in places if _user_of(shown, place) not in takes), None)


def _user_of(shown: str, place: int) -> str:
    """Return the function that has the part at a place as an argument; empty for an operator."""
    depth = 0
    for before in range(place - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(shown[before], 0)
        if depth < 0:
            name = re.search(r"\w*$", shown[:before])
            function = name[0] if name else ""
            # A literal that is cast is still one.
            return _user_of(shown, before - len(function)) if function == "cast" else function
    return ""


def _has(types: Mapping[str, FieldType], name: str, values: Collection[str]) -> bool:
    """Return whether the type of a field has such values."""
    kind = inner_type(types[name]) if name in types else None
    known: Collection[Any] = ()
    if isinstance(kind, EnumType):
        known = [member.value for member in kind.cls]
    elif isinstance(kind, LiteralType):
        known = kind.values
    return {*values} <= {*known}
