"""The rules and classes under which the groups of a checkpoint were stored."""

from typing import Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.payload import HEADER_BYTES, peek_identity
from sessionkit._engine.reading import check_order, compared
from sessionkit._engine.storage import logic_of
from sessionkit.spark.checkpoints.groups import explained, foreign, stored_groups
from sessionkit.spec.shared import AnySpec

__all__ = ["HEAD_BYTES", "check_rules"]

HEAD_BYTES: Final = 65_536
"""How much of a payload is read to find the rules under which it was stored."""
PAYLOAD: Final = "payload"
ORIGIN_BYTES: Final = 6
"""Magic and version; the rest of the header differs from group to group."""
LENGTH_BYTES: Final = 4


def check_rules(path: str, spec: AnySpec, spark: SparkSession | None) -> None:
    """
    Check that what a checkpoint stores can be read under a spec, as far as its payloads begin so.

    Raises:
        StateError: It was stored under other rules, or sessionkit didn't write it.
        SessionkitError: This Spark has no state reader, or no session is active.
    """
    logic, what = logic_of(spec), f"the checkpoint {path}"
    found = [
        (compared(logic, peek_identity(head)), first_ms, last_ms)
        for head, first_ms, last_ms in _heads(path, spark)
    ]
    for one, _, _ in found:
        one.check(what)
    check_order(found, what)


def _heads(path: str, spark: SparkSession | None) -> list[tuple[bytes, int, int]]:
    """
    Return how payloads begin, up to their identities, once each: nearly always there is one.

    With each come the times at which the first and the last row of those was written.
    """
    with explained(path, spark):
        stored = stored_groups(path, spark)
        if PAYLOAD not in stored.select("state.*").columns:
            raise foreign(path)
        heads = stored.groupBy(_head(F.col(f"state.{PAYLOAD}")).alias("head"))
        written = F.col("state.written_ms")
        rows = heads.agg(F.min(written), F.max(written)).collect()
        return [(bytes(head), first_ms, last_ms) for head, first_ms, last_ms in rows]
    return []


def _head(payload: Column) -> Column:
    version = F.conv(F.hex(payload.substr(5, 2)), 16, 10).cast("int")
    found = payload.substr(1, max(HEADER_BYTES.values()))
    for number, size in HEADER_BYTES.items():
        found = F.when(version == number, _head_after(payload, size)).otherwise(found)
    return found


def _head_after(payload: Column, size: int) -> Column:
    """Return a head without what differs, from a header of so many bytes."""
    length = F.conv(F.hex(payload.substr(size + 1, LENGTH_BYTES)), 16, 10).cast("bigint")
    known = F.least(length + LENGTH_BYTES, F.lit(HEAD_BYTES)).cast("int")
    identity = payload.substr(F.lit(size + 1), known)
    head = F.concat(
        payload.substr(1, ORIGIN_BYTES), F.lit(bytearray(size - ORIGIN_BYTES)), identity
    )
    return F.coalesce(head, payload.substr(1, size))
