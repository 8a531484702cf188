"""A real Spark stream, micro-batch by micro-batch: what the driver is compared with."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sessionkit import Counts, SessionSpec
from sessionkit.spark import batch_counts, sessionize
from sessionkit.testing import OpenSession
from tests.support.kept import Kept
from tests.support.streams import FileStream, write_files

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]
Row: TypeAlias = Mapping[str, Any]

INSTANT: Final = pa.timestamp("us", tz="UTC")


@attrs.define
class Batches:
    """A stream from rows to rows; each run after the first is a restart."""

    files: FileStream
    schema: pa.Schema
    kept: Kept = attrs.field(factory=lambda: Kept("unix_micros"))
    counts: dict[int, Counts] = attrs.field(factory=dict)

    @classmethod
    def of(cls, spark: SparkSession, spec: AnySpec, schema: pa.Schema, folder: Path) -> "Batches":
        return cls(FileStream(spark, spec, folder), schema)

    @property
    def rows(self) -> dict[int, list[dict[str, Any]]]:
        """What came out, by batch; times as microseconds since the epoch."""
        batches = self.kept.batches(self.files.spark)
        return {n: [row.asDict() for row in rows] for n, rows in batches.items()}

    def run(self, batches: Iterable[Sequence[Row]]) -> None:
        """Start, run a micro-batch for each of these, then those without data, and stop."""
        self._put(batches)
        with self.files.state_store():
            query = self._writer().trigger(availableNow=True).start()
        query.awaitTermination()
        self._read_progress(query.recentProgress)

    def run_with_pauses(self, batches: Sequence[Sequence[Row]]) -> None:
        """Start, and after each of these micro-batches let those without data run; stop."""
        self._put(batches[:1])
        with self.files.state_store():
            query = self._writer().start()
        query.processAllAvailable()
        for batch in batches[1:]:
            self._put([batch])
            query.processAllAvailable()
        query.stop()
        self._read_progress(query.recentProgress)

    def open_sessions(self) -> list[OpenSession[Any]]:
        """Return the open sessions of the checkpoint, in order of key and start."""
        return sorted(self.files.open(), key=lambda session: (repr(session.key), session.start))

    def _put(self, batches: Iterable[Sequence[Row]]) -> None:
        """Put files before the source, each at once: a running query may look at any time."""
        source, made = self.files.source, self.files.folder / "made"
        source.mkdir(parents=True, exist_ok=True)
        number = len(list(source.iterdir()))
        tables = [pa.Table.from_pylist(list(map(dict, batch)), self.schema) for batch in batches]
        write_files(made, tables, first=number)
        for path in sorted(made.iterdir()):
            path.rename(source / path.name)

    def _writer(self) -> DataStreamWriter:
        sessions = sessionize(self.files.events(), self.files.spec, with_rejected=True)
        return self.kept.writer(sessions).option("checkpointLocation", self.files.checkpoint)

    def _read_progress(self, progress: Iterable[Mapping[str, Any]]) -> None:
        for entry in progress:
            if entry.get("observedMetrics"):
                self.counts[entry["batchId"]] = batch_counts(entry)
