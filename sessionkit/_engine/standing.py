"""
How a bucket stands after a micro-batch, in a few integers beside its counts.

A bucket that isn't called in a micro-batch says nothing, and hasn't changed. So whoever keeps what
each bucket said last knows the sum, the least and the most over all of them, exactly.
"""

import attrs

__all__ = ["Standing"]


@attrs.frozen
class Standing:
    """
    What a bucket remembers after a micro-batch.

    Attributes:
        open: The open sessions, or the keys. None under `layout="pages"` where the spec also
            remembers sessions that have closed: only their pages tell which those are.
        buffered: The events that wait for the watermark.
        stored_bytes: How many bytes it handed to Spark's state store: its row and its pages.
        oldest_us: When the oldest of its open sessions began; None where none is open, for a
            `StatefulSpec`, and under `layout="pages"`, which doesn't read all sessions.
        watermark_us: The watermark in force in it; None before the first.
    """

    open: int | None = 0
    buffered: int = 0
    stored_bytes: int = 0
    oldest_us: int | None = None
    watermark_us: int | None = None
