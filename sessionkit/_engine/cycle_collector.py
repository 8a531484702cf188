"""Python's collector of reference cycles, which costs a call of a bucket a fifth of its time."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused"]


@contextmanager
def collector_paused() -> Iterator[None]:
    """
    Pause the collector of reference cycles.

    A call makes an object an event and an object a session, none of them in a cycle. The collector
    would look at them again and again, for a fifth of the call's time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
