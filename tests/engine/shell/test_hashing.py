"""The hash of a key: stored pages depend on it, so it never changes."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from sessionkit._engine.shell.pages import HASHES, key_hashes

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
KINDS: dict[str, tuple[pa.DataType, list[Any], list[int]]] = {
    "str": (
        pa.string(),
        ["", "a", "ä", "a much longer key"],
        [0, 2292242689, 273539149, 3597837379],
    ),
    "bytes": (pa.binary(), [b"", b"a", b"\x00\x00"], [0, 2292242689, 378632646]),
    "int": (pa.int64(), [0, 1, -1, 2**60 + 1], [0, 3025583356, 1689612811, 1130429875]),
    "bool": (pa.bool_(), [False, True], [0, 3025583356]),
    "date": (pa.date32(), [date(1969, 12, 31), date(2026, 3, 8)], [1689612811, 1942596343]),
    "datetime": (
        pa.timestamp("us", tz="UTC"),
        [NOON, NOON.replace(microsecond=1)],
        [37642896, 834598695],
    ),
    "decimal": (
        pa.decimal128(38, 2),
        [Decimal("0.01"), Decimal("-0.01"), Decimal(10) ** 20],
        [3025583356, 999098615, 2390294704],
    ),
}


def column(kind: str) -> pa.ChunkedArray:
    """Return a column of keys of a kind."""
    arrow, values, _ = KINDS[kind]
    return pa.chunked_array([pa.array(values, arrow)])


@pytest.mark.parametrize("kind", KINDS)
def test_the_hash_of_a_key_never_changes(kind: str) -> None:
    """A checkpoint finds a key by the hash that another machine or release gave it."""
    assert KINDS[kind][2] == key_hashes([column(kind)]).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_the_hash_of_a_key_does_not_depend_on_its_neighbours(kind: str) -> None:
    """A key has one hash, wherever it stands in a column, and in whatever chunk."""
    whole = column(kind)
    apart = [int(key_hashes([whole.slice(n, 1)])[0]) for n in range(len(whole))]
    chunks = pa.chunked_array([whole.chunk(0).slice(0, 1), whole.chunk(0).slice(1)])

    assert key_hashes([whole]).tolist() == apart
    assert key_hashes([whole]).tolist() == key_hashes([chunks]).tolist()


@pytest.mark.parametrize("kind", [pa.string(), pa.int64()])
def test_hashes_spread_evenly(kind: pa.DataType) -> None:
    """Of numbered keys, each sixteenth of all hashes gets a sixteenth, to a tenth."""
    names = [f"user_{n:06}" for n in range(20_000)]
    keys = pa.array(names if kind == pa.string() else range(20_000), kind)
    hashes = key_hashes([pa.chunked_array([keys])])

    for part in range(16):
        low, high = part * HASHES // 16, (part + 1) * HASHES // 16
        assert 1250 == pytest.approx(((low <= hashes) & (hashes < high)).sum(), rel=0.1)
