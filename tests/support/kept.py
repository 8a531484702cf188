"""The rows that `foreachBatch` is given, kept in files: Connect calls it in another process."""

import pickle
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

import attrs
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

__all__ = ["Kept"]


@attrs.frozen
class Kept:
    """
    What `foreachBatch` calls, and what it was given so far.

    Attributes:
        times: The function by which times become numbers: a datetime from Spark is naive, in the
            zone of the machine. None leaves them as they are.
        folder: Where the rows are.
    """

    times: Literal["unix_micros", "unix_millis"] | None = None
    folder: str = attrs.field(factory=mkdtemp)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Keep the rows of a micro-batch; those of one that runs again replace them."""
        shown = frame if self.times is None else frame.select(*self._columns(frame))
        rows = shown.collect()
        written = Path(self.folder, f".{batch_id}")
        written.write_bytes(pickle.dumps(rows))
        written.rename(Path(self.folder, str(batch_id)))

    def _columns(self, frame: DataFrame) -> list[Column]:
        convert: Any = getattr(F, str(self.times))
        return [
            convert(F.col(name)).alias(name) if kind == "timestamp" else F.col(name)
            for name, kind in frame.dtypes
        ]

    def batches(self) -> dict[int, list[Row]]:
        """Return the rows of every micro-batch, in their order."""
        numbers = sorted(int(path.name) for path in Path(self.folder).glob("[0-9]*"))
        return {
            number: pickle.loads(Path(self.folder, str(number)).read_bytes())  # noqa: S301 (our own)
            for number in numbers
        }
