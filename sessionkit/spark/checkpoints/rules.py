"""The rules and classes under which the groups of a checkpoint were stored."""

from typing import Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.storage import logic_of
from sessionkit._engine.stored import compared
from sessionkit._spec import AnySpec
from sessionkit.spark.checkpoints.groups import explained, foreign, stored_groups
from sessionkit.state import HEADER_BYTES, peek_identity

__all__ = ["HEAD_BYTES", "check_rules"]

HEAD_BYTES: Final = 65_536
"""How much of a payload is read to find the rules under which it was stored."""
PAYLOAD: Final = "payload"
ORIGIN_BYTES: Final = 6
"""Magic and version; the checksums in the rest of the header differ from group to group."""
LENGTH_BYTES: Final = 4


def check_rules(path: str, spec: AnySpec, spark: SparkSession | None) -> None:
    """
    Check that what a checkpoint stores can be read under a spec, as far as its payloads begin so.

    Raises:
        StateError: It was stored under other rules, or sessionkit didn't write it.
        SessionkitError: This Spark has no state reader, or no session is active.
    """
    logic = logic_of(spec)
    for head in _heads(path, spark):
        compared(logic, peek_identity(head)).check(f"the checkpoint {path}")


def _heads(path: str, spark: SparkSession | None) -> list[bytes]:
    """Return how payloads begin, up to their identities, once each: nearly always there is one."""
    with explained(path):
        stored = stored_groups(path, spark)
        if PAYLOAD not in stored.select("state.*").columns:
            raise foreign(path)
        heads = stored.select(_head(F.col(f"state.{PAYLOAD}"))).distinct().collect()
        return [bytes(row[0]) for row in heads]
    return []


def _head(payload: Column) -> Column:
    length = F.conv(F.hex(payload.substr(HEADER_BYTES + 1, LENGTH_BYTES)), 16, 10).cast("bigint")
    known = F.least(length + LENGTH_BYTES, F.lit(HEAD_BYTES)).cast("int")
    sums = F.lit(bytearray(HEADER_BYTES - ORIGIN_BYTES))
    identity = payload.substr(F.lit(HEADER_BYTES + 1), known)
    head = F.concat(payload.substr(1, ORIGIN_BYTES), sums, identity)
    return F.coalesce(head, payload.substr(1, HEADER_BYTES))
