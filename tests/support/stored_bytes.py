"""All bytes of the files in a folder, decompressed as far as Spark and RocksDB compress them."""

import struct
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Final

import pyarrow as pa

LZ4: Final = b"LZ4Block"
"""Begins each block of Spark's `LZ4CompressionCodec`, in deltas, snapshots and changelogs."""
HEADER: Final = struct.Struct("<8sBIII")
RAW: Final = 0x10


def files_with(folder: Path, text: str) -> list[str]:
    """Return the files in whose names or bytes there is a text."""
    sought = text.encode()
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if text in path.name
        or (path.is_file() and any(sought in found for found in _read(path.read_bytes())))
    )


def _read(content: bytes) -> Iterator[bytes]:
    """Yield the bytes of a file, and what they are without compression."""
    yield content
    if content.startswith(LZ4):
        yield b"".join(_blocks(content))
    elif content.startswith(b"PK"):
        with zipfile.ZipFile(BytesIO(content)) as packed:
            for name in packed.namelist():
                yield from _read(packed.read(name))


def _blocks(content: bytes) -> Iterator[bytes]:
    codec, place = pa.Codec("lz4_raw"), 0
    while place < len(content):
        magic, token, stored, length, _ = HEADER.unpack_from(content, place)
        assert magic == LZ4
        place += HEADER.size
        block = content[place : place + stored]
        raw = token & 0xF0 == RAW
        yield block if raw or not length else codec.decompress(block, length, asbytes=True)
        place += stored
