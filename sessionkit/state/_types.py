"""
The types that a field can have, and the three forms of a value.

*python*   what users see: `datetime`, `Enum`, an attrs object.
*storage*  what Arrow receives: numbers, text, lists, dicts by field; `dump` creates it.
*wire*     what Spark passes: the storage form with times as whole microseconds or days, and
           bytes and decimals as text inside a collection.

`load` reads both storage and wire, since it knows the declared type. `coerce` accepts values that
convert to the type without loss, such as a NumPy integer for an `int`, and refuses all others with
the path of the value. Each type is one frozen value, in `_scalars` or `_collections`; a new type
is a new class there and a rule in `_fields`.
"""

from typing import Any, Protocol

import pyarrow as pa

from sessionkit.errors import StateValueError, with_hint

__all__ = ["FieldType", "refused"]


class FieldType(Protocol):
    """What every field type provides; the module explains the three forms of a value."""

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the storage form."""

    @property
    def exact(self) -> frozenset[type]:
        """The Python types whose values need no `coerce`; empty if every value needs it."""

    @property
    def plain(self) -> bool:
        """Whether the three forms are the same."""

    def coerce(self, value: Any, path: str) -> Any:
        """Return the value in its exact type; raise `StateValueError` with the path otherwise."""

    def dump(self, value: Any) -> Any:
        """Turn the python form into the storage form."""

    def load(self, value: Any) -> Any:
        """Turn the storage or the wire form into the python form."""


def refused(value: object, path: str, wanted: str, hint: str) -> StateValueError:
    """Return the error for a value that doesn't fit, without the value: it may be personal data."""
    found = f"`{path}` must be {wanted}, found {type(value).__name__}"
    return StateValueError(with_hint(found, hint))
