"""The bytes of a bucket: they come back as they were, or not at all."""

import json
import zlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit._engine.shell.payload import (
    FORMAT_VERSION,
    Origin,
    binding_checksum,
    pack,
    peek_identity,
    unpack,
)
from sessionkit.errors import StateCorruptedError, StateError
from sessionkit.state._codec import codec_of
from tests.support.strategies import classes_with_objects

IDENTITY = b'{"bucket_count": 64, "keys": {"user": "string"}}'
TABLE = pa.table({"user": ["ann", "bob", None], "pages": [1, 2, 3]})
ORIGIN = Origin.of("1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed", 17, 1_772_971_200_000)
BINDING = binding_checksum([7], [1, 2])
PAYLOAD = pack(IDENTITY, [TABLE], BINDING, ORIGIN)
SUMS_SIZE = 18
HEADER_SIZE = 42
RESTORE = "\n\nHint: restore the checkpoint from a copy, or start a new one"


def damaged(position: int, mask: int) -> bytes:
    """Return the payload with some bits of one byte turned over."""
    return PAYLOAD[:position] + bytes([PAYLOAD[position] ^ mask]) + PAYLOAD[position + 1 :]


def corruption(payload: bytes) -> str:
    """Return the text with which damaged bytes are refused."""
    with pytest.raises(StateCorruptedError) as refused:
        unpack(payload)
    return str(refused.value)


@given(
    made=st.lists(classes_with_objects(), max_size=3),
    identity=st.binary(max_size=50).map(lambda text: text + b"}"),
)
def test_tables_come_back_as_they_were(
    made: list[tuple[type[Any], list[Any]]], identity: bytes
) -> None:
    """Any tables, of any number and schema, come back equal and in order."""
    codecs = [codec_of(cls) for cls, _ in made]
    tables = [
        pa.table(codec.encode(objects), schema=codec.schema)
        for codec, (_, objects) in zip(codecs, made, strict=True)
    ]
    found = unpack(pack(identity, tables, BINDING, ORIGIN))
    back = found.tables
    assert identity == found.identity
    assert [table.schema for table in tables] == [table.schema for table in back]
    objects = [codec.decode(table.columns) for codec, table in zip(codecs, back, strict=True)]
    assert repr([objects for _, objects in made]) == repr(objects)


def test_the_header_is_as_described() -> None:
    """Magic, format version, checksums and identity lie where the module says they lie."""
    body = PAYLOAD[SUMS_SIZE:]
    assert b"SKB1" + FORMAT_VERSION.to_bytes(2, "big") == PAYLOAD[:6]
    assert zlib.crc32(b"[7]") == int.from_bytes(PAYLOAD[6:10], "big")
    assert zlib.crc32(b"[1, 2]") == int.from_bytes(PAYLOAD[10:14], "big")
    checksum = zlib.crc32(body, zlib.crc32(PAYLOAD[4:14]))
    assert checksum == int.from_bytes(PAYLOAD[14:SUMS_SIZE], "big")
    numbers = [ORIGIN.batch.to_bytes(8, "big"), ORIGIN.watermark_ms.to_bytes(8, "big")]
    assert ORIGIN.query + b"".join(numbers) == body[:24]
    body = PAYLOAD[HEADER_SIZE:]
    length = int.from_bytes(body[:4], "big")
    assert length - len(IDENTITY) in range(8)
    assert IDENTITY.ljust(length) == body[4 : 4 + length]


@pytest.mark.parametrize("bit", range(8))
def test_every_bit_that_is_turned_over_is_found(bit: int) -> None:
    """A version that isn't known is taken for another release; all else is damage."""
    for position in range(len(PAYLOAD)):
        expected = StateError if position in {4, 5} else StateCorruptedError
        with pytest.raises(expected, match="\n\nHint: "):
            unpack(damaged(position, 1 << bit))


def test_bytes_that_are_cut_short_are_refused() -> None:
    """No beginning of a payload is taken for a whole one."""
    assert f"the stored state is truncated: 0 bytes{RESTORE}" == corruption(b"")
    assert f"the stored state is truncated: 17 bytes{RESTORE}" == corruption(PAYLOAD[:17])
    for length in range(SUMS_SIZE, len(PAYLOAD)):
        expected = (
            "the stored state is damaged: its checksum is wrong "
            f"({length - SUMS_SIZE} bytes){RESTORE}"
        )
        assert expected == corruption(PAYLOAD[:length])


@pytest.mark.parametrize("foreign", [b"PAR1" + bytes(20), b'{"a": 1, "b": 2, "c": 3}', bytes(20)])
def test_bytes_of_another_program_are_refused(foreign: bytes) -> None:
    """Bytes of another program are called so, with how they begin."""
    expected = (
        f"the stored state was not written by sessionkit: it starts with {foreign[:4]!r}"
        "\n\nHint: point the query at its own checkpoint"
    )
    assert expected == corruption(foreign)
    with pytest.raises(StateCorruptedError) as refused:
        peek_identity(foreign)
    assert expected == str(refused.value)


@pytest.mark.parametrize(
    ("version", "hint"),
    [
        (0, "use the release of sessionkit that wrote it, or a later one"),
        (2, "no release has written it: start with a new checkpoint"),
        (FORMAT_VERSION + 1, "use the release of sessionkit that wrote it, or a later one"),
        (65_535, "use the release of sessionkit that wrote it, or a later one"),
    ],
)
def test_state_of_another_format_is_refused(version: int, hint: str) -> None:
    """State of another release is refused before anything of it is read."""
    other = PAYLOAD[:4] + version.to_bytes(2, "big") + PAYLOAD[6:]
    reads = "the stored state has format {}, but this release reads 1 and 3\n\nHint: {}"
    expected = reads.format(version, hint)
    for read in (lambda: unpack(other), lambda: peek_identity(other)):
        with pytest.raises(StateError) as refused:
            read()
        assert expected == str(refused.value)


def test_the_identity_is_read_from_the_first_bytes() -> None:
    """The beginning of a payload is enough to know what wrote it, damaged or not behind."""
    whole = HEADER_SIZE + 4 + len(IDENTITY)
    for head in (PAYLOAD[:whole], PAYLOAD, damaged(len(PAYLOAD) - 1, 1)):
        assert json.loads(IDENTITY) == peek_identity(head)


@pytest.mark.parametrize("length", range(HEADER_SIZE, HEADER_SIZE + 4))
def test_a_head_that_ends_right_behind_the_header_is_refused(length: int) -> None:
    """A head without the length of the identity is refused as one that is cut short."""
    with pytest.raises(StateCorruptedError):
        peek_identity(PAYLOAD[:length])
