"""
The interface of field types, and the three forms of a value.

*python*   what users see: `datetime`, `Enum`, an attrs object.
*storage*  what Arrow receives: numbers, text, lists, dicts by field; `dump` creates it.
*wire*     what Spark passes: the storage form with times as whole microseconds or days, and
           bytes and decimals as text inside a collection.

`load` reads both storage and wire, since it knows the declared type. `coerce` accepts values that
convert to the type without loss, such as a NumPy integer for an `int`, and refuses all others with
the path of the value. Each type is a frozen class in `_scalars` or `_collections`, with everything
that the library needs to know about it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arguments import sql_type
from sessionkit.errors import StateValueError

INT64: Final = (-(2**63), 2**63 - 1)
"""The smallest and the largest integer that can be stored."""
Form: TypeAlias = Any
"""
A declared type as JSON: a name, such as `"int"`, or a list of a name and its parts, such as
`["list", "int"]`. The part of a class is a dict of its fields. Stored state contains forms, so they
never change between releases.
"""
Convert: TypeAlias = Callable[[Any], Any]
"""Converts a value that Arrow's `to_pylist` returns to a value of another Arrow type."""


@attrs.frozen
class KeyForm:
    """The form in which a key column is hashed to a bucket."""

    sql: str  # the SQL type of the form
    # The SQL expression for the form, with `{}` for the column. Equal keys have the same form,
    # whichever supported type the column has.
    made_by: str
    # The types that a migration may give stored keys: types with a single form for each value.
    becomes: frozenset[str] = frozenset()
    # Converts the storage form to this form; None where they are the same.
    of: Callable[[Any], Any] | None = None


@attrs.frozen(kw_only=True)
class Facts:
    """The properties of a scalar type."""

    annotation: Any  # the annotation of a field of this type
    columns: frozenset[str]  # the Spark column types it's read from, without the suffix `Type`
    tag: bytes  # the byte that encodes its Arrow type in the input of id hashes
    hint: str = ""  # the fix for a column of another type, where a cast would change values
    is_cast: bool = True  # whether Spark casts a column to `sql` before it reaches Python
    key: KeyForm | None = None  # None if a key column can't have this type
    bounds: tuple[int, int] | None = None  # the stored integers of the first and the last value
    within: str = ""  # the bounds in words, for errors


@attrs.frozen
class Widening:
    """How values stored as another type are read as a wider type."""

    made: Callable[..., Convert]  # takes the converter of each part, returns that of a value
    # The parts to convert: their path inside the value, stored form, and type now.
    parts: Sequence[tuple[str, Form, "FieldType"]] = ()


class FieldType:
    """Base class of field types; the module's docstring explains the three forms of a value."""

    __slots__ = ()
    plain: bool = False
    """Whether the three forms are the same."""

    @property
    def form(self) -> Form:
        """The type as stored state records it."""
        raise NotImplementedError

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the storage form."""
        raise NotImplementedError

    @property
    def sql(self) -> str:
        """The SQL type of a column, independent of `spark.sql.timestampType`."""
        return sql_type(self.arrow)

    @property
    def shown(self) -> str:
        """The SQL type in messages, as Spark itself shows it."""
        return self.sql.replace("timestamp_ltz", "timestamp")

    @property
    def exact(self) -> frozenset[type]:
        """The Python types whose values need no `coerce`; empty if all values need it."""
        return frozenset()

    @property
    def facts(self) -> Facts | None:
        """The properties of a scalar type; None for a composite type."""
        return None

    @property
    def misfit(self) -> str:
        """Why a value in a column isn't one of this type, for errors; empty if all values are."""
        return f"is outside {self.facts.within}" if self.facts and self.facts.bounds else ""

    def fitted(self, column: pa.Array) -> pa.Array:
        """Return the values of a column as they're stored: null where one isn't of this type."""
        if not (self.facts and self.facts.bounds):
            return column
        first, last = self.facts.bounds
        numbers = stored_numbers(column)
        outside = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
        outside = outside.fill_null(fill_value=False)
        if not pc.any(outside).as_py():
            return column
        return pc.if_else(outside, pa.scalar(None, column.type), column)

    def coerce(self, value: Any, path: str) -> Any:
        """Return the value in its exact type, or raise a `StateValueError` with its path."""
        raise NotImplementedError

    def dump(self, value: Any) -> Any:
        """Convert the python form to the storage form."""
        return value

    def load(self, value: Any) -> Any:
        """Convert the storage or the wire form to the python form."""
        return value

    def widening(self, stored: Form) -> Widening | None:  # noqa: ARG002 (most types have none)
        """Return how to read values of another stored form; None if they can't be read."""
        return None


def may_be_key(kind: FieldType) -> bool:
    return kind.facts is not None and kind.facts.key is not None


def key_form(kind: FieldType) -> KeyForm:
    if kind.facts is None or kind.facts.key is None:
        raise TypeError(f"{type_name(kind)} can't be the type of a key")
    return kind.facts.key


def type_name(kind: FieldType) -> str:
    """Return the name of a type in errors, such as `date`."""
    return type(kind).__name__.removesuffix("Type").lower()


HALF_WORD: Final = 32


def stored_numbers(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return times, days or booleans as the integers that Arrow stores."""
    half = pa.int32() if column.type.bit_width == HALF_WORD else pa.int64()
    return column.cast(half).cast(pa.int64())


def same(value: Any) -> Any:
    return value


def is_again(cls: type[Any], other: type[Any]) -> bool:
    """Return whether `cls` is `other` defined again, as by a notebook's cell run twice."""
    names = (cls.__module__, cls.__qualname__)
    return cls is not other and names == (other.__module__, other.__qualname__)


def of_another_class(
    value: object, path: str, cls: type[Any], expected: str, hint: str
) -> StateValueError:
    """Return the error for an object that isn't of a class, perhaps since that was defined anew."""
    kind = type(value)
    if is_again(kind, cls):
        shown = f"one of another {kind.__name__}: the class was defined again after the spec"
        hint = "build the spec again too; in a notebook, run its cell again"
        return refused(value, path, expected, hint, shown=shown)
    is_same_name = kind.__name__ == cls.__name__
    shown = f"{kind.__module__}.{kind.__qualname__}" if is_same_name else kind.__name__
    return refused(value, path, expected, hint, shown=shown)


def refused(
    value: object, path: str, expected: str, hint: str, *, shown: str | None = None
) -> StateValueError:
    """Return the error for a misfit, without the value itself: it may be personal data."""
    if value is None:
        hint = "declare it as `... | None` where it may be missing, or give it a default"
    found = f"`{path}` must be {expected}, found {shown or type(value).__name__}"
    return StateValueError(found, hint)
