"""What is left of an erased key in the files of a checkpoint."""

import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sessionkit.spark import batch_counts, erase_key
from sessionkit.spark._settings import is_connect, release_of
from tests.support.erased_visits import KEY, SPEC, users, views
from tests.support.spark_settings import changed
from tests.support.streams import FileStream

AT_ONCE = {
    "spark.sql.streaming.minBatchesToRetain": "1",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
    "spark.sql.streaming.stateStore.unloadOnCommit": "true",
}
"""Settings under which the next micro-batches leave nothing of old ones."""


LZ4: Final = b"LZ4Block"
"""Begins each block of Spark's `LZ4CompressionCodec`, in deltas, snapshots and changelogs."""
HEADER: Final = struct.Struct("<8sBIII")
RAW: Final = 0x10


@pytest.mark.long
@pytest.mark.parametrize("victim", ["worker", "JVM"])
def test_no_byte_of_an_erased_key_stays_after_a_kill(
    victim: str, spark: SparkSession, tmp_path: Path
) -> None:
    """The job ends in the erasing micro-batch, once before and once after the state is stored."""
    if release_of(spark.version) < (4, 1) or is_connect(spark):
        pytest.skip("before 4.1, old versions are deleted in the background, once a minute")
    stream = FileStream(spark, SPEC, tmp_path, with_rejected=True, erases=True)
    checkpoint, weapon = Path(stream.checkpoint), tmp_path / "weapon"
    stream.put(views((KEY, 0, "/"), ("bob", 1, "/")), views((KEY, 2, "/")))
    stream.run()
    assert files_with(checkpoint, KEY)
    weapon.write_text(victim)
    erase_key(stream.checkpoint, SPEC, KEY, spark=spark)
    stream.put(views(("bob", 2, str(weapon))))

    if victim == "worker":
        with suppress(PySparkException):
            stream.run()
    else:
        code = f"from tests.support import erased_visits as e; e.run_once({str(tmp_path)!r})"
        command = [sys.executable, "-c", code]
        assert 0 != subprocess.run(command, check=False).returncode
    assert not weapon.exists()
    assert [f"{KEY} 2", "bob 1"] == users(stream)
    (erasing,) = stream.progress()
    stream.forget_end_of(int(erasing["batchId"]))
    for file in (tmp_path / "out" / "_spark_metadata").glob(f"*{erasing['batchId']}*"):
        file.unlink()  # or the sink would skip the micro-batch
    (again,) = stream.progress()
    assert [1, 1] == [batch_counts(one).erasures for one in (erasing, again)]
    assert ["bob 2"] == users(stream)
    with changed(spark, AT_ONCE):
        stream.put(views(("bob", 4, "/")), views(("bob", 5, "/")))
        stream.run()

    assert not files_with(checkpoint, KEY)
    assert ["bob 4"] == users(stream)
    assert [("erased", KEY)] == [(row["kind"], row["user"]) for row in stream.rows()]


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
