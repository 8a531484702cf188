"""Which query stored something, and when: state of another one, or of another time, isn't read."""

import struct
from typing import Final, Self

import attrs

from sessionkit.errors import StateCorruptedError, StateMismatchError, with_hint

__all__ = ["NOBODY", "RESTORE", "Origin"]

RESTORE: Final = "restore the checkpoint from a copy, or start a new one"
WHOLE: Final = "restore the whole checkpoint from one copy, or begin a query with `carry_over`"
PACKED: Final = struct.Struct(">8sqq")
ID_BYTES: Final = 8
UNKNOWN: Final = bytes(ID_BYTES)


@attrs.frozen
class Origin:
    """
    The query and the micro-batch that write a payload, or read one.

    Attributes:
        query: The first bytes of the query's id, which stays the same over restarts. Zeros where it
            isn't known: such a payload belongs to any query.
        batch: The number of the micro-batch.
        watermark_ms: Spark's watermark of the micro-batch, in milliseconds.
    """

    query: bytes = UNKNOWN
    batch: int = 0
    watermark_ms: int = 0

    @classmethod
    def of(cls, query_id: str, batch: int, watermark_ms: int = 0) -> Self:
        """Return the origin of what a query with this id, a UUID, stores in a micro-batch."""
        return cls(bytes.fromhex(query_id.replace("-", "")[: 2 * ID_BYTES]), batch, watermark_ms)

    @classmethod
    def of_bytes(cls, packed: bytes) -> Self:
        """Return what a payload says; nothing where its format knows of none."""
        return cls(*PACKED.unpack(packed)) if packed else cls()

    def at(self, watermark_ms: int) -> "Origin":
        """Return this at a watermark."""
        return Origin(self.query, self.batch, watermark_ms)

    @property
    def packed(self) -> bytes:
        """The bytes of this."""
        return PACKED.pack(self.query, self.batch, self.watermark_ms)

    @property
    def is_known(self) -> bool:
        """Whether it is known which query this is."""
        return self.query != UNKNOWN

    def check(self, now: "Origin", what: str) -> None:
        """
        Check that what was stored may be read by a micro-batch.

        Args:
            now: The micro-batch.
            what: What was stored, for the error.

        Raises:
            StateMismatchError: Another query stored it.
            StateCorruptedError: It is from after the micro-batch, or from a later watermark.
        """
        if not (self.is_known and now.is_known):
            return
        if self.query != now.query:
            found = (
                f"{what} belongs to another query: {_said(self)} stored it, this is {_said(now)}"
            )
            raise StateMismatchError(with_hint(found, WHOLE))
        if self.batch > now.batch:
            found = f"micro-batch {self.batch} wrote it, and this is micro-batch {now.batch}"
            raise StateCorruptedError(with_hint(f"{what} is damaged: {found}", WHOLE))
        if self.watermark_ms > now.watermark_ms:
            found = (
                f"the checkpoint is damaged: micro-batch {now.batch} has the watermark "
                f"{now.watermark_ms} ms, but {what} was written in micro-batch {self.batch} at "
                f"{self.watermark_ms} ms, and a watermark never falls"
            )
            raise StateCorruptedError(with_hint(found, WHOLE))


NOBODY: Final = Origin()


def _said(origin: Origin) -> str:
    text = origin.query.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:]}-..."
