"""
Seeds: what one is, its files, and the rows that the old query has read, which are left out.

`checkpoints/migrate` makes them, of a checkpoint or of a batch; `jobs/run` begins with one. What
the engine makes of one is in `_engine/shell/seed`.
"""

import base64
import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, chain, groupby
from typing import Any, Final
from uuid import uuid4

import attrs
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit._arguments import explains
from sessionkit._engine.micro_batch import GroupState
from sessionkit._engine.shell.seed import HELD_COLUMN, KEPT_COLUMN, SeedFormat
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.wire.packing import (
    WATERMARK_COLUMN,
    joined_packs,
    packed_by_group,
    packed_rows,
)
from sessionkit._instants import BEGINNING_US, instant_of, span_us
from sessionkit.errors import SessionkitError, SpecError
from sessionkit.spark._columns import A_STREAM, check_frame
from sessionkit.spark._grouping import BUCKET, bucket_of_forms, key_forms
from sessionkit.spark._logs import Location, Progress, active_session, exists
from sessionkit.spark._paths import literal, path_of
from sessionkit.spark._plan import STREAMING_LEAF, PlanNode, plan_of
from sessionkit.spark._settings import own_source
from sessionkit.spec.base import AnySpec
from sessionkit.state._types import key_form

FORMAT: Final = 1
SCHEMA: Final = f"{BUCKET} int, {KEPT_COLUMN} binary, {HELD_COLUMN} binary"
ABOUT: Final = "about"
ROWS: Final = "rows"
OF_ROWS: Final = re.compile(rf"(?P<place>.*)/{ROWS}(-[0-9a-f-]{{36}})?/.*")
ROWS_OF_A_CHUNK: Final = 2**15
ROWS_AT_ONCE: Final = 2**17
PATHS: Final = ("_metadata.file_path", "file_path")
PLACES: Final = (
    ("topic", "partition", "offset"),
    ("kafka_topic", "kafka_partition", "kafka_offset"),
)
CALL_UNREAD: Final = (
    "call `seed.unread` right after the source, or `seed.unread(frame, None)` if the options of "
    "the source leave out what the old query has read"
)


@attrs.frozen
class Seed:
    """
    The initial state of a query: a folder with open sessions or keys, and waiting events.

    Pass it as `seed=` to `sessionize` or `apply_with_state` at every start, because it's a source
    of the query. Only the first micro-batch reads its rows.

    Attributes:
        path: The folder.
        format: The format of its rows, and the watermark at which it was taken.
        progress: The progress of the migrated query; None after a batch.
        rows: The name of the subfolder with its rows, which bears who wrote them.
    """

    path: str
    format: SeedFormat = attrs.field(repr=False)
    progress: Progress | None = None
    rows: str = attrs.field(default=ROWS, repr=False)

    @property
    def watermark(self) -> datetime | None:
        """The watermark at which it was taken, in UTC; None without a watermark."""
        at_us = self.format.watermark_us
        return instant_of(at_us) if at_us > BEGINNING_US else None

    @property
    def until(self) -> datetime | None:
        """The event time before which the batch has read all events, in UTC; None if unknown."""
        at_us = self.format.until_us
        return None if at_us is None else instant_of(at_us)

    def starting_offsets(self, source: int = 0) -> str:
        """
        Return the option `startingOffsets` of Kafka: where the old query stopped reading a source.

        Args:
            source: The number of the source in the old query, from 0.

        Raises:
            SessionkitError: There is no such source.
        """
        return self._stopped_at(source)[0]

    def unread(self, rows: DataFrame, source: int | None = 0) -> DataFrame:
        """
        Return a stream without the rows that the old query has read.

        With a seed from `migrate`, each stream of the query must pass through this method, or the
        query is refused. It filters the rows of files and Kafka. With `startingOffsets`, Spark
        doesn't even read those rows from Kafka.

        Args:
            rows: The rows of a source, directly from `readStream`, or from `read_stream` with its
                position.
            source: The number of the source in the old query, from 0; named sources are sorted by
                name. None declares that the old query has read none of these rows.

        Raises:
            SessionkitError: There is no such source, or its rows have no columns for their origin.
        """
        check_frame(rows, "rows", A_STREAM)
        if source is not None:
            rows = _without_read(rows, *self._stopped_at(source))
        return rows.alias(self.marker)

    @property
    def marker(self) -> str:
        """The alias that marks a stream without the rows of the old query."""
        return f"unread_{zlib.crc32(self.path.encode()):08x}"

    def _stopped_at(self, source: int) -> tuple[str, Sequence[str]]:
        """Return the offset at which the old query stopped reading a source, and its files."""
        if self.progress is None:
            found = "this seed comes from a batch: no query has read a source"
            hint = "pass the stream as it is: what is before the end of the batch counts as late"
            raise SessionkitError(found, hint)
        number = len(self.progress.offsets)
        if not 0 <= source < number:
            found = f"the old query had {number} sources, and `source` is {source}"
            raise SessionkitError(found, "count them from 0, in the order of the query")
        return self.progress.offsets[source], self.progress.files[source]


def write_seed(chunks: DataFrame, spec: AnySpec, seed: Seed) -> Seed:
    """Write a seed from chunks of state, and return it."""
    spark = chunks.sparkSession
    if _only_text(seed.path, spark) is not None:
        found = f"there is a seed at {seed.path} already"
        raise SessionkitError(found, "write it to a folder of its own")
    rows = _in_groups(chunks, spec, seed.format)
    if spec.delay_ms is not None and seed.format.watermark_us != BEGINNING_US:
        # A marker row starts Spark's watermark at the seed's watermark.
        at_us = seed.format.watermark_us + span_us(spec.watermark_delay or timedelta(0))
        instant = F.timestamp_micros(F.lit(at_us)).alias(WATERMARK_COLUMN)
        rows = rows.unionByName(spark.range(1).select(instant), allowMissingColumns=True)
    # Another call may write a seed to the same folder: it would replace the rows of this one.
    seed = attrs.evolve(seed, rows=f"{ROWS}-{uuid4()}")
    rows.write.parquet(f"{seed.path}/{seed.rows}")
    form = attrs.asdict(seed.format, recurse=False)
    form["identity"] = seed.format.identity.decode()
    for name in ("kept", "held"):
        form[name] = base64.b64encode(form[name].serialize()).decode()
    progress = seed.progress and attrs.asdict(seed.progress)
    about = json.dumps({"format": FORMAT, **form, "progress": progress, "rows": seed.rows})
    text = spark.createDataFrame([(about,)], "value string")
    # In a shared folder, the end of a job would also take what a killed one has left there.
    text.coalesce(1).write.text(f"{seed.path}/{ABOUT}/{uuid4()}")
    _only_text(seed.path, spark)
    return seed


def _only_text(path: str, spark: SparkSession) -> str | None:
    """Return what a folder says about its seed; None if it has none."""
    about = f"{path}/{ABOUT}"
    if not exists(spark, about):
        return None
    reader = spark.read.option("recursiveFileLookup", value=True)
    texts = [row[0] for row in reader.text(literal(about), wholetext=True).collect()]
    if len(texts) > 1:
        found = f"there are {len(texts)} seeds at {path}: calls at one moment have written them"
        raise SessionkitError(found, "write it again, to a folder of its own")
    return texts[0] if texts else None


@explains
def read_seed(path: Location, *, spark: SparkSession | None = None) -> Seed:
    """
    Return the seed that `migrate` or `bootstrap` wrote to a folder, as they returned it.

    Args:
        path: The folder.
        spark: The session to read with; by default the active session.

    Raises:
        SessionkitError: There is no seed in the folder, a release of sessionkit with another format
            of seeds wrote it, or no session of Spark is active.
    """
    path = path_of(path, "path")
    text = _only_text(path, active_session(spark))
    if text is None:
        raise SessionkitError(f"there is no seed at {path}", "write one with migrate or bootstrap")
    about: dict[str, Any] = json.loads(text)
    if about["format"] != FORMAT:
        found = f"the seed at {path} has format {about['format']}, this release reads {FORMAT}"
        raise SessionkitError(found, "use the release of sessionkit that wrote it")
    kept, waiting = (
        pa.ipc.read_schema(pa.py_buffer(base64.b64decode(about[name]))) for name in ("kept", "held")
    )
    # Seeds of early releases don't say when their last session can end.
    ends_us = about.get("ends_us", BEGINNING_US)
    instants = about["watermark_us"], about["until_us"], about["idle_us"], ends_us
    form = SeedFormat(about["identity"].encode(), kept, waiting, *instants)
    progress = about["progress"]
    if progress is not None:
        offsets, files = tuple(progress["offsets"]), tuple(map(tuple, progress["files"]))
        progress = Progress(**{**progress, "offsets": offsets, "files": files})
    return Seed(path, form, progress, about.get("rows", ROWS))


def seed_among(files: Iterable[Iterable[str]], spark: SparkSession) -> Seed | None:
    """Return the seed among the files that a query has read; None if it began without one."""
    found = (OF_ROWS.fullmatch(path) for paths in files for path in paths)
    for place in sorted({of_rows["place"] for of_rows in found if of_rows}):
        if _only_text(place, spark) is not None:
            return read_seed(place, spark=spark)
    return None


def chunks_schema(spec: AnySpec) -> str:
    """Return the columns of `chunks_of`: the keys of a chunk, and its state or its events."""
    forms = [f"k{place}: {key_form(f.type).sql}" for place, f in enumerate(spec.key_fields)]
    return f"keys array<struct<{', '.join(forms)}>>, kept binary, held binary"


def chunks_of(spec: AnySpec, memory: GroupState) -> pa.Table:
    """Return the state of a group as a few rows, each with the state of many keys as bytes."""
    parts = [
        (name, batch)
        for name, table in (("kept", memory.kept), ("held", memory.buffered))
        for batch in table.combine_chunks().to_batches(max_chunksize=ROWS_OF_A_CHUNK)
        if batch.num_rows
    ]
    packs = [(column, part.serialize().to_pybytes()) for column, part in parts]
    columns = {
        name: pa.array([pack if name == column else None for column, pack in packs], pa.binary())
        for name in ("kept", "held")
    }
    tables = [logic_of(spec).program.schema.empty_table(), *(pa.table(part) for _, part in parts)]
    names = [f"k{place}" for place in range(len(spec.keys))]
    keys = [pa.StructArray.from_arrays(key_forms(spec, table), names) for table in tables]
    ends = pa.array(accumulate(map(len, keys)), pa.int32())
    return pa.table({"keys": pa.ListArray.from_arrays(ends, pa.concat_arrays(keys)), **columns})


def read_seed_rows(seed: Seed, spec: AnySpec, spark: SparkSession) -> DataFrame:
    """Return a stream of a seed's rows; the first micro-batch reads all of them."""
    watermark = "" if spec.delay_ms is None else f", {WATERMARK_COLUMN} timestamp_ltz"
    reader = own_source(spark, "sessionkit_seed")
    return reader.schema(SCHEMA + watermark).parquet(f"{seed.path}/{seed.rows}")


def _in_groups(chunks: DataFrame, spec: AnySpec, form: SeedFormat) -> DataFrame:
    schemas = {KEPT_COLUMN: form.kept, HELD_COLUMN: form.held}

    def bucket(key: Column) -> Column:
        forms = [key.getField(f"k{place}") for place in range(len(spec.keys))]
        return bucket_of_forms(spec, forms, spec.storage.buckets)

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for buckets, *columns in (batch.columns for batch in batches):
            for (name, schema), packs in zip(schemas.items(), columns, strict=True):
                for portion in _portions(buckets.filter(packs.is_valid()), packs.drop_null()):
                    yield _batch(*portion, name, schema)

    grouped = chunks.select(F.transform("keys", bucket).alias("buckets"), "kept", "held")
    return grouped.mapInArrow(pack, SCHEMA)


def _portions(buckets: pa.Array, packs: pa.Array) -> Iterator[tuple[pa.Array, list[bytes]]]:
    """Join chunks, up to about `ROWS_AT_ONCE` rows."""
    ends = accumulate(map(len, buckets))
    portions = [end // ROWS_AT_ONCE for end in ends]
    for _, numbers in groupby(range(len(portions)), key=portions.__getitem__):
        places = pa.array(numbers)
        yield buckets.take(places), packs.take(places).to_pylist()


def _batch(buckets: pa.Array, packs: list[bytes], name: str, schema: pa.Schema) -> pa.RecordBatch:
    by_bucket = pa.table({BUCKET: buckets.flatten()})
    of_packs, packed, _ = packed_by_group(by_bucket, joined_packs(schema, packs))
    kinds = {KEPT_COLUMN: pa.binary(), HELD_COLUMN: pa.binary()}
    return packed_rows(of_packs, kinds, {name: packed})


def _without_read(rows: DataFrame, offset: str, files: Sequence[str]) -> DataFrame:
    if offset == "-":  # nothing has been read of the source
        return rows
    match json.loads(offset):
        case {"logOffset": int()}:
            return _without_files(rows, files)
        case dict() as topics if all(isinstance(ends, dict) for ends in topics.values()):
            return _without_messages(rows, topics)
    found = f"what the old query has read can't be told apart: it stopped at {offset}"
    raise SessionkitError(found, CALL_UNREAD)


def _without_files(rows: DataFrame, files: Sequence[str]) -> DataFrame:
    (path,) = _first(rows, [(path,) for path in PATHS], "file")
    # The URI of a local file has three slashes in Spark's log, and one in `file_path`.
    local = [path.replace("file:///", "file:/", 1) for path in files]
    return rows.where(~path.isin(sorted({*files, *local}))) if files else rows


def _without_messages(rows: DataFrame, topics: Mapping[str, Mapping[str, int]]) -> DataFrame:
    """Return the rows of a Kafka source from the first unread offset of each partition on."""
    topic, partition, offset = _first(rows, PLACES, "Kafka topic")
    ends = {f"{name}/{n}": end for name, of_topic in topics.items() for n, end in of_topic.items()}
    if not ends:
        return rows
    end_by_partition = F.create_map(*map(F.lit, chain.from_iterable(ends.items())))
    end = F.try_element_at(end_by_partition, F.concat_ws("/", topic, partition.cast("string")))
    return rows.where(end.isNull() | (offset >= end))


def _first(rows: DataFrame, choices: Collection[Sequence[str]], what: str) -> list[Column]:
    for names in choices:
        columns = [F.col(name) for name in names]
        try:
            _ = rows.select(*columns).schema
        except PySparkException:
            continue
        return columns
    found = f"the rows don't say from which {what} they are, so the old query may have read them"
    raise SessionkitError(found, CALL_UNREAD)


def check_unread(events: DataFrame, marker: str) -> None:
    """Check that a stream has only events that the old query has not read."""
    root = plan_of(events)
    if root is None:
        found = "the plan of the stream can't be read, so it may have rows that the seed has too"
        raise SpecError(found, "leave line breaks out of the literals in it")
    if not _is_unread(root, marker):
        found = "the stream may have rows that the old query has read: the seed has them already"
        hint = "write sessionize(seed.unread(events), spec, seed=seed)"
        raise SpecError(found, f"{hint}, with what readStream gives as `events`")


def _is_unread(node: PlanNode, marker: str) -> bool:
    if node.operator == "SubqueryAlias" and node.text == marker:
        return True
    if not node.inputs:
        return not node.operator.startswith(STREAMING_LEAF)
    return all(_is_unread(child, marker) for child in node.inputs)
