"""How large a row of state, or a page of one, may be: with more, Spark fails and says nothing."""

from collections import Counter
from typing import Any, Final

from sessionkit._engine.outcome import Memory
from sessionkit._engine.rows.objects import decode_keys
from sessionkit.errors import StateError, with_hint
from sessionkit.spec.shared import AnySpec

__all__ = ["MOST_BYTES", "check_size"]

MOST_BYTES: Final = 2**28
"""
Of a row, and of a page. They cross as one value of Arrow or protobuf, and lie in one array of Java:
neither takes 2 GiB, and on the way there are several copies at once. A row of 500 MB took more
than the 6 GB of a JVM.
"""


def check_size(spec: AnySpec, what: str, size: int, memory: Memory, most: int = MOST_BYTES) -> None:
    """
    Check that what would be stored isn't too large.

    Args:
        spec: The spec.
        what: What would be stored, for the message.
        size: How many bytes it has.
        memory: What is in it, and maybe more.
        most: How many bytes it may have.

    Raises:
        StateError: It's larger; the message names the key with the largest part.
    """
    if size <= most:
        return
    key, own = _largest(spec, memory)
    text = f"{what} would have {size:,} bytes, and at most {most:,} can be stored"
    hint = 'raise `bucket_count` for a new checkpoint, or use layout="pages"'
    if 2 * own > size or spec.layout != "buckets":
        hint = "keep less in its state"
        if spec.row_kind == "session":
            sooner = "end its sessions sooner, with max_events or max_duration of SessionRules"
            hint = f"{sooner}, or {hint}"
    raise StateError(with_hint(f"{text}; the largest part, {own:,} bytes, is of {key}", hint))


def _largest(spec: AnySpec, memory: Memory) -> tuple[Any, int]:
    """Return the key with the most bytes, those of events that wait among them."""
    sizes: Counter[Any] = Counter()
    for table in (memory.kept, memory.buffered):
        for place, key in enumerate(decode_keys(spec, table)):
            sizes[key] += table.slice(place, 1).nbytes
    return sizes.most_common(1)[0]
