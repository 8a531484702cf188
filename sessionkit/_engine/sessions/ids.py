"""
The identity of a session: a hash of its key and its start, the same in every run.

What is hashed has an encoding of its own, so that no library's way of printing values can change
an id: for each key value a byte for its type, its length in four bytes, big-endian, and its bytes;
then the start as eight bytes of microseconds since the epoch. The hash is BLAKE2b with 16 bytes,
personalised with `session/1`, written in hexadecimal.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from hashlib import blake2b
from typing import Any, Final

from sessionkit.state import (
    BoolType,
    BytesType,
    DatetimeType,
    DateType,
    DecimalType,
    FieldType,
    IntType,
    StrType,
)

__all__ = ["ENCODINGS", "session_ids"]

PERSON: Final = b"session/1"
EXACT: Final = Context(prec=40)


def _signed(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def _decimal(value: Decimal) -> bytes:
    digits = format(value.normalize(EXACT), "f") if value else "0"
    return digits.encode()


# By the storage form of a value: days for a date, microseconds for an instant.
ENCODINGS: Final[dict[type[FieldType], tuple[bytes, Callable[[Any], bytes]]]] = {
    StrType: (b"s", str.encode),
    IntType: (b"i", _signed),
    BoolType: (b"o", _signed),
    BytesType: (b"b", bytes),
    DateType: (b"d", _signed),
    DatetimeType: (b"t", _signed),
    DecimalType: (b"n", _decimal),
}


def session_ids(
    types: Sequence[FieldType], keys: Iterable[Sequence[Any]], starts_us: Iterable[int]
) -> list[str]:
    """Return the ids of sessions from their key values, in python form, and their starts."""
    encoders = [_encoder(kind) for kind in types]
    return [
        blake2b(
            b"".join([encode(value) for encode, value in zip(encoders, key, strict=True)])
            + _signed(start_us),
            digest_size=16,
            person=PERSON,
        ).hexdigest()
        for key, start_us in zip(keys, starts_us, strict=True)
    ]


def _encoder(kind: FieldType) -> Callable[[Any], bytes]:
    tag, encode = ENCODINGS[type(kind)]

    def typed(value: Any) -> bytes:
        body = encode(kind.dump(value))
        return tag + len(body).to_bytes(4, "big") + body

    return typed
