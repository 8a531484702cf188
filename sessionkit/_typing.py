"""The protocols and aliases of what sessionkit is handed."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    import attrs
    from _typeshed import DataclassInstance

    Record: TypeAlias = attrs.AttrsInstance | DataclassInstance
else:
    Record = object

R = TypeVar("R", bound=Record)

FinishResult: TypeAlias = R | Iterable[R] | None
"""
What `finish` may return, and `process` and `on_timer` of a `StatefulSpec`.

That is one result row, several (a list, or a generator), or None for no row.
"""


class GroupStateLike(Protocol):
    """
    The part of PySpark's `GroupState` that the engine uses.

    PySpark's own class, the fake of the testing tools and the stand-in of the batch run all have
    it. Times are milliseconds since the epoch.
    """

    @property
    def exists(self) -> bool:
        """Whether a state is stored for this group."""

    @property
    def get(self) -> tuple[Any, ...]:
        """The stored state, a tuple by position."""

    @property
    def hasTimedOut(self) -> bool:  # noqa: N802 (Spark's name)
        """Whether Spark calls because the timer of the group fired."""

    def update(self, newValue: tuple[Any, ...]) -> None:  # noqa: N803 (Spark's name)
        """Replace the stored state; clears the timer."""

    def remove(self) -> None:
        """Remove the stored state."""

    def setTimeoutTimestamp(self, timestampMs: int) -> None:  # noqa: N802, N803 (Spark's names)
        """Arm the event-time timer, not before the watermark."""

    def setTimeoutDuration(self, durationMs: int) -> None:  # noqa: N802, N803 (Spark's names)
        """Arm the processing-time timer, so long after the time of this micro-batch."""

    def getCurrentWatermarkMs(self) -> int:  # noqa: N802 (Spark's name)
        """Return Spark's watermark of this micro-batch; 0 where there is none yet."""

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802 (Spark's name)
        """Return the processing time of this micro-batch, the same when it runs again."""
