"""Write and read requests to erase a key: files that the query reads as a stream."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit._arguments import explains, quoted
from sessionkit._engine.shell.erasing import ERASED_COLUMN
from sessionkit._engine.wire.packing import joined_packs
from sessionkit.errors import SessionkitError
from sessionkit.spark._logs import Location, active_session, exists
from sessionkit.spark._paths import check_stream, literal_path, path_of
from sessionkit.spark._settings import own_source
from sessionkit.spark.checkpoints.reading import finished_batch, key_row
from sessionkit.spark.checkpoints.state_reader import check_stored_rules, reads_state
from sessionkit.spark.jobs.checks import check_not_chained
from sessionkit.spark.jobs.frames import packed_erasures
from sessionkit.spec.base import AnySpec
from sessionkit.spec.calls import check_kind

FOLDER: Final = "erasures"


@explains
def read_erasures(
    checkpoint: Location, spec: AnySpec, *, spark: SparkSession | None = None
) -> DataFrame:
    """
    Return the stream of keys that `erase_key`, or `python -m sessionkit erase`, asks to erase.

    Its columns are the key columns.

    Pass it as `erase=` to `sessionize` or `apply_with_state` at every start of the query. The
    requests are files in the folder `erasures` of the checkpoint. Spark deletes each of them once a
    later micro-batch than the one that read it begins.

    Args:
        checkpoint: The checkpoint location of the query, which may be new.
        spec: The spec of the query.
        spark: The session to read with; by default the active one.

    Raises:
        SpecError: The spec says `carries_watermark=True`, with which a query erases nothing; or the
            path has a backslash or one of `[]{}*?`, which Spark takes for a pattern, so that no
            stream can read the folder.
        SessionkitError: No session is active.
    """
    checkpoint = path_of(checkpoint, "checkpoint")
    check_kind(spec)
    check_not_chained(spec, "erase")
    session, folder = active_session(spark), _folder(checkpoint)
    check_stream(folder)
    if _requests(session, folder, spec) is None:
        _write(session, folder, spec, [])
    reader = own_source(session, "sessionkit_erasures")
    return reader.schema(_schema(spec)).option("cleanSource", "delete").parquet(folder)


@explains
def erase_key(
    checkpoint: Location, spec: AnySpec, key: Any, *, spark: SparkSession | None = None
) -> None:
    """
    Ask a running or stopped query to erase a key in its next micro-batch.

    The query must read such requests: pass `erase=read_erasures(...)` to `sessionize` or
    `apply_with_state` at every start. A stopped query erases the key after its next start.

    The micro-batch first drops everything that the query has stored for the key, including events
    that wait. An open session gives no row, even if it's over by then. Rows that the query has
    already written stay in the sink. Events of the key in the same micro-batch or later begin anew,
    as for a new key.

    `Counts.erasures` of that micro-batch counts the key, even if nothing was stored for it. With
    `with_rejected=True`, a row of kind `erased` names the key.

    The request is a file with the key, in the folder `erasures` of the checkpoint. Spark deletes it
    once a later micro-batch than the one that read it begins.

    Args:
        checkpoint: The checkpoint location of the query.
        spec: The spec of the query.
        key: The value of the key column, or a tuple of values if there are several columns.
        spark: The session to work with; by default the active one.

    Raises:
        StateError: The checkpoint was written under other rules than the spec's.
        SpecError: The spec says `carries_watermark=True`, with which a query erases nothing.
        SessionkitError: The query of the checkpoint doesn't read such requests, the key doesn't fit
            the spec, or no session is active.
    """
    checkpoint = path_of(checkpoint, "checkpoint")
    check_kind(spec)
    check_not_chained(spec, "erase")
    session, folder = active_session(spark), _folder(checkpoint)
    row = key_row(spec, key)
    if _requests(session, folder, spec) is None:
        found = f"the query of the checkpoint {checkpoint} reads no erasures: it has no {folder}"
        hint = "start it with sessionize(..., erase=read_erasures(checkpoint, spec))"
        raise SessionkitError(found, f"{hint}, which needs a new checkpoint")
    if reads_state(session) and finished_batch(checkpoint, None, session) is not None:
        check_stored_rules(checkpoint, spec, session)
    _write(session, folder, spec, row.to_batches())


def unread_erasures(
    checkpoint: str, spec: AnySpec, files: Iterable[Iterable[str]], spark: SparkSession
) -> pa.Table:
    """
    Return the keys of the erasure requests that a query hasn't read.

    `files` are the files that each source has read, since Spark deletes a request later. Only their
    names are compared, since a checkpoint may be copied; each request has a unique name.
    """
    schema = pa.schema(spec.key_schema)
    requests = _requests(spark, _folder(checkpoint), spec)
    if requests is None:
        return schema.empty_table()
    read = {path.rpartition("/")[2] for paths in files for path in paths if f"/{FOLDER}/" in path}
    unread = requests.where(~F.col("_metadata.file_name").isin(sorted(read)))
    packed = packed_erasures(unread, spec).where(f"{ERASED_COLUMN} is not null")
    return joined_packs(schema, [bytes(row[ERASED_COLUMN]) for row in packed.collect()])


def _folder(checkpoint: str) -> str:
    return f"{checkpoint.rstrip('/')}/{FOLDER}"


def _schema(spec: AnySpec) -> str:
    return ", ".join(f"{quoted(field.name)} {field.type.sql}" for field in spec.key_fields)


def _requests(spark: SparkSession, folder: str, spec: AnySpec) -> DataFrame | None:
    """Return the keys of all requests; None if there is no folder."""
    if not exists(spark, folder):
        return None
    return spark.read.schema(_schema(spec)).parquet(literal_path(folder))


def _write(spark: SparkSession, folder: str, spec: AnySpec, rows: Iterable[pa.RecordBatch]) -> None:
    names, batches = list(spec.keys), [*rows]

    def keys(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays(batch.columns, names=names)

    written = spark.range(0, 1, numPartitions=1).mapInArrow(keys, _schema(spec))
    written.write.mode("append").parquet(folder)
