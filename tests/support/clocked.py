"""
A Spark stream whose processing time is moved by hand, so that no test has to sleep.

Spark writes the processing time of a micro-batch to the log `offsets` before it runs the batch, and
to the log `commits` once the sink is done. A batch with the first entry and without the second runs
again at the next start, at the time in the log, so that its result stays the same after a crash.
So here every batch is planned first, by a sink that fails; then the time in the log is rewritten;
then the query is started again, runs the batch, and plans the next one.

Every batch thus comes after a restart, and one that ran twice.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import Counts
from sessionkit._instants import micros_of
from sessionkit.spark import batch_counts
from tests.support.streams import FileStream, needs_own_process

Row: TypeAlias = Mapping[str, Any]

NOT_YET: Final = "planned, and not run yet"


@attrs.frozen
class Trigger:
    """A moment at which Spark looks for something to do."""

    at: datetime
    rows: Sequence[Row] = ()


@attrs.define
class ClockedStream:
    """A stream from rows to rows at given processing times."""

    files: FileStream
    schema: pa.Schema
    rows: dict[int, list[dict[str, Any]]] = attrs.field(factory=dict)
    counts: dict[int, Counts] = attrs.field(factory=dict)
    state_rows: dict[int, int] = attrs.field(factory=dict)
    _output: DataFrame | None = None

    @classmethod
    def of(cls, spark: SparkSession, spec: Any, schema: pa.Schema, folder: Path) -> "ClockedStream":
        """Prepare a stream in an empty folder; rejected rows come out too."""
        needs_own_process(spark)
        return cls(FileStream(spark, spec, folder, with_rejected=True), schema)

    def run(self, triggers: Sequence[Trigger]) -> list[int | None]:
        """
        Start, run a micro-batch at each of these triggers, and stop.

        Returns:
            The number of each batch; None where Spark saw no reason to run one.
        """
        ran: list[int | None] = []
        self._forget_plan()
        self._output = None
        for trigger in triggers:
            if trigger.rows:
                self.files.put(pa.Table.from_pylist(list(map(dict, trigger.rows)), self.schema))
            self._start()
            planned = self._planned()
            ran.append(planned)
            if planned is not None:
                self._set_clock(planned, trigger.at)
        self._start()
        return ran

    def _planned(self) -> int | None:
        """Return the batch that is planned and not done."""
        done = max(_numbers(self._log("commits")), default=-1)
        planned = max(_numbers(self._log("offsets")), default=-1)
        return planned if planned > done else None

    def _log(self, name: str) -> Path:
        return Path(self.files.checkpoint) / name

    def _start(self) -> None:
        """Run the batch that is planned, if one is; plan the next one, if there is a reason to."""
        planned = self._planned()
        with self.files.state_store():
            # Made once for all triggers of a run: to plan it takes as long as to run a batch.
            self._output = self.files.output() if self._output is None else self._output
            query = (
                self._output.writeStream.option("checkpointLocation", self.files.checkpoint)
                .outputMode("append")
                .foreachBatch(self._sink(planned))
                .start()
            )
        try:
            query.processAllAvailable()
        except StreamingQueryException as stopped:
            if NOT_YET not in str(stopped):
                raise
        finally:
            query.stop()
        for progress in query.recentProgress:
            batch_id = progress["batchId"]
            if batch_id == planned:
                self.counts[batch_id] = batch_counts(progress)
                self.state_rows[batch_id] = progress["stateOperators"][0]["numRowsTotal"]

    def _sink(self, planned: int | None) -> Callable[[DataFrame, int], None]:
        def keep(frame: DataFrame, batch_id: int) -> None:
            if batch_id != planned:
                raise RuntimeError(NOT_YET)
            # As numbers: a datetime from Spark is naive, in the zone of the machine.
            columns = [
                F.unix_micros(F.col(name)).alias(name) if kind == "timestamp" else F.col(name)
                for name, kind in frame.dtypes
            ]
            self.rows[batch_id] = [row.asDict() for row in frame.select(*columns).collect()]

        return keep

    def _set_clock(self, batch_id: int, at: datetime) -> None:
        path = self._log("offsets") / str(batch_id)
        version, clocks, *sources = path.read_text().split("\n")
        moved = json.dumps({**json.loads(clocks), "batchTimestampMs": micros_of(at) // 1_000})
        path.write_text("\n".join([version, moved, *sources]))
        # Hadoop's checksum of the file as it was.
        path.with_name(f".{batch_id}.crc").unlink(missing_ok=True)

    def _forget_plan(self) -> None:
        """Drop the batch planned after the last one, as if the query had been stopped before."""
        planned = self._planned()
        if planned is not None:
            (self._log("offsets") / str(planned)).unlink()
            (self._log("offsets") / f".{planned}.crc").unlink(missing_ok=True)


def _numbers(log: Path) -> Iterable[int]:
    names = [path.name for path in log.iterdir()] if log.exists() else []
    return [int(name) for name in names if name.isdigit()]
