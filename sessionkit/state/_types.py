"""
What every field type provides: its facts, and the three forms of a value.

*python*   what users see: `datetime`, `Enum`, an attrs object.
*storage*  what Arrow receives: numbers, text, lists, dicts by field; `dump` creates it.
*wire*     what Spark passes: the storage form with times as whole microseconds or days, and
           bytes and decimals as text inside a collection.

`load` reads both storage and wire, since it knows the declared type. `coerce` accepts values that
convert to the type without loss, such as a NumPy integer for an `int`, and refuses all others with
the path of the value. Each type is one frozen value, in `_scalars` or `_collections`. All that the
rest of the library has to know of a type is there too: a new type is a new class.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa

from sessionkit._arguments import sql_type
from sessionkit.errors import StateValueError

INT64: Final = (-(2**63), 2**63 - 1)
"""The first and the last whole number that can be stored."""
Form: TypeAlias = Any
"""
A declared type as JSON, which stored state contains, so it never changes between releases: a name,
such as `"int"`, or a list of a name and its parts, such as `["list", "int"]`. The part of a class
is a dict of its fields.
"""
Convert: TypeAlias = Callable[[Any], Any]
"""Turns a stored value, as Arrow lists it, into one of which Arrow makes another type."""


@attrs.frozen
class KeyForm:
    """The form of a key column of a type that is hashed to the number of a bucket."""

    sql: str  # the type of the form
    # The expression that makes it, with `{}` for the column. It turns the other types that the
    # column may have into the same form, so that equal keys are grouped together.
    made_by: str
    # The types that a stored key may be carried over to: those with one form for each value.
    becomes: frozenset[str] = frozenset()
    # Turns the storage form of a value into this form; None where they are the same.
    of: Callable[[Any], Any] | None = None


@attrs.frozen(kw_only=True)
class Facts:
    """What is known of a type without parts."""

    annotation: Any  # that of a field of this type
    columns: frozenset[str]  # the types of Spark's columns that it's read from, without `Type`
    tag: bytes  # its Arrow type, in what ids are hashed from
    hint: str = ""  # what to do with a column of another type, where a cast makes another value
    is_cast: bool = True  # whether Spark casts a column to `sql` before it reaches Python
    key: KeyForm | None = None  # None where it can't be the type of a key column
    bounds: tuple[int, int] | None = None  # the numbers of the first and the last value
    within: str = ""  # what the bounds are, for errors


@attrs.frozen
class Widening:
    """How values that were stored as another type are read as those of a type."""

    made: Callable[..., Convert]  # takes what converts each part, gives what converts a value
    # What must be converted inside: where it is, its stored form, and its type now.
    parts: Sequence[tuple[str, Form, "FieldType"]] = ()


class FieldType:
    """What every field type provides; the module explains the three forms of a value."""

    __slots__ = ()
    plain: bool = False
    """Whether the three forms are the same."""

    @property
    def form(self) -> Form:
        """What stored state calls it."""
        raise NotImplementedError

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the storage form."""
        raise NotImplementedError

    @property
    def sql(self) -> str:
        """The type of a column of Spark, whatever a session means by `timestamp`."""
        return sql_type(self.arrow)

    @property
    def shown(self) -> str:
        """The name of that type in messages: what Spark itself shows."""
        return self.sql.replace("timestamp_ltz", "timestamp")

    @property
    def exact(self) -> frozenset[type]:
        """The Python types whose values need no `coerce`; empty if every value needs it."""
        return frozenset()

    @property
    def facts(self) -> Facts | None:
        """What else is known of it; None of a type with parts."""
        return None

    def coerce(self, value: Any, path: str) -> Any:
        """Return the value in its exact type; raise `StateValueError` with the path otherwise."""
        raise NotImplementedError

    def dump(self, value: Any) -> Any:
        """Turn the python form into the storage form."""
        return value

    def load(self, value: Any) -> Any:
        """Turn the storage or the wire form into the python form."""
        return value

    def widening(self, stored: Form) -> Widening | None:  # noqa: ARG002 (most types have none)
        """Return how values of another stored form are read; None where they can't be."""
        return None


def may_be_key(kind: FieldType) -> bool:
    return kind.facts is not None and kind.facts.key is not None


def key_form(kind: FieldType) -> KeyForm:
    """Return the form in which a key column of a type is hashed."""
    if kind.facts is None or kind.facts.key is None:
        raise TypeError(f"{type_name(kind)} can't be the type of a key")
    return kind.facts.key


def type_name(kind: FieldType) -> str:
    """Return what errors call a type, such as `date`."""
    return type(kind).__name__.removesuffix("Type").lower()


def same(value: Any) -> Any:
    return value


def refused(
    value: object, path: str, wanted: str, hint: str, *, shown: str | None = None
) -> StateValueError:
    """Return the error for a value that doesn't fit, without the value: it may be personal data."""
    if value is None:
        hint = "declare it as `... | None` where it may be missing, or give it a default"
    found = f"`{path}` must be {wanted}, found {shown or type(value).__name__}"
    return StateValueError(found, hint)
