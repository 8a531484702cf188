"""Read a source into the columns of a spec."""

import os
from collections.abc import Collection
from functools import reduce
from operator import or_
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader

from sessionkit import SpecError
from sessionkit._for_addons import AnySpec, Spec, check_extra, explains, quoted, sql_type
from sessionkit.addons.sources.json import with_json
from sessionkit.addons.sources.values import (
    PAYLOAD,
    UNREADABLE,
    Avro,
    JsonLines,
    KafkaTopics,
    PayloadFormat,
    Source,
)

PLACES: Final = frozenset({*KafkaTopics.origin_columns, *JsonLines.origin_columns})


@explains
def read_stream(
    spark: SparkSession,
    source: Source,
    spec: AnySpec,
    *,
    with_position: bool = True,
    name: str | None = None,
) -> DataFrame:
    """
    Read a source as a stream with the columns that a spec reads.

    A payload that can't be read becomes a quarantined row with the reason, its bytes and its
    origin, never a row of nulls. The frame has the reason in the column `_unreadable`. Keep this
    column until `sessionize`, as `withColumn` and a left join do: without it, such a payload is a
    row of nulls.

    Example:
        import attrs
        from sessionkit import Inputs
        from sessionkit.spark import sessionize
        from sessionkit.addons.sources import JsonLines, read_stream

        # visits: the spec in the example of SessionSpec.of
        visits = attrs.evolve(visits, inputs=Inputs(passthrough=JsonLines.origin_columns))
        events = read_stream(spark, JsonLines("/data/events"), visits)
        # Sessions, and unreadable payloads with the reason.
        rows = sessionize(events, visits, with_rejected=True)

    Args:
        spark: The Spark session.
        source: The source of the events.
        spec: The spec, whose key, event time and event class define the columns and their types.
        with_position: Whether rejected rows must say where they came from, in the origin columns:
            the file, or the topic, partition and offset. If True, the spec must pass at least one
            of these through: `passthrough=KafkaTopics.origin_columns`, or
            `JsonLines.origin_columns`.
        name: The name of the source in checkpoints, from Spark 4.2 on, with
            `spark.sql.streaming.queryEvolution.enableSourceEvolution`.

    Raises:
        SpecError: The spec passes no origin column through, though `with_position` is True; or the
            source can't have the columns that the spec reads.
        UnsupportedError: A library is missing.
    """
    _check_session(spark)
    reader = spark.readStream if name is None else spark.readStream.name(name)
    return _events(reader, source, spec, with_position=with_position)


@explains
def read_batch(
    spark: SparkSession, source: Source, spec: AnySpec, *, with_position: bool = True
) -> DataFrame:
    """
    Read all that a source has now, as a batch with the columns that a spec reads.

    A payload that can't be read becomes a row with the reason in the column `_unreadable`, and
    `sessionize` quarantines it, as with `read_stream`.

    Args:
        spark: The Spark session.
        source: The source of the events.
        spec: As for `read_stream`.
        with_position: Whether rejected rows must say where they came from, in the origin columns of
            the source. If True, the spec must pass at least one of them through, as for
            `read_stream`. Pass False if nobody reads the rejected rows.

    Raises:
        SpecError: The spec passes no origin column through, though `with_position` is True; or the
            source can't have the columns that the spec reads.
        UnsupportedError: A library is missing.
    """
    _check_session(spark)
    return _events(spark.read, source, spec, with_position=with_position)


def _check_session(spark: object) -> None:
    if not hasattr(type(spark), "readStream"):
        found = f"`spark` must be the session of Spark, found {spark!r}"
        raise SpecError(found, "pass the session of Spark, the source and the spec")


def _events(
    reader: DataStreamReader | DataFrameReader,
    source: Source,
    spec: AnySpec,
    *,
    with_position: bool,
) -> DataFrame:
    if not isinstance(spec, Spec):
        found = f"`spec` must be a SessionSpec or a StatefulSpec, found {type(spec).__name__}"
        raise SpecError(found, "pass the session of Spark, the source and the spec")
    if not isinstance(source, KafkaTopics | JsonLines):
        found = f"`source` must be a KafkaTopics or a JsonLines, found {source!r}"
        raise SpecError(found, "pass the session of Spark, the source and the spec")
    passed = {*spec.inputs.passthrough}
    kind = KafkaTopics if isinstance(source, KafkaTopics) else JsonLines
    if with_position and not (kind.origin_columns.keys() - {PAYLOAD}) & passed:
        found = "rejected rows wouldn't say where they came from: the spec passes nothing through"
        passthrough = f"passthrough={kind.__name__}.origin_columns"
        hint = f"add inputs=Inputs({passthrough}) to the spec, or with_position=False here"
        raise SpecError(found, hint)
    places = [field for field in spec.input_schema if field.name in PLACES & passed]
    fields = [field for field in spec.input_schema if field not in places]
    headers = source.headers if isinstance(source, KafkaTopics) else {}
    texts = [field.name for field in fields if pa.types.is_string(field.type)]
    for name in headers.keys() - {*texts}:
        found = f"`headers` names the column `{name}`, which isn't text that the spec reads"
        raise SpecError(found, f"the texts are {', '.join(texts)}; add others to `passthrough`")
    for field in fields:
        if _has_other_names(field.type):
            found = f"`{field.name}` is a map whose keys aren't text, and names in payloads are"
            raise SpecError(found, "declare it as a dict of str, or read the source yourself")
    of_payload = [field for field in fields if field.name not in headers]
    decoded = _decoded(reader, source, of_payload, spec.keys)
    columns = [F.col(quoted(field.name)) for field in fields]
    origin = [_place(fields, field, decoded.columns) for field in places]
    unreadable = [UNREADABLE] if UNREADABLE in decoded.columns else []
    return decoded.select(*columns, *origin, *unreadable)


def _has_other_names(kind: pa.DataType) -> bool:
    """Return whether a type has a map with keys that aren't text."""
    if pa.types.is_map(kind):
        return not pa.types.is_string(kind.key_type) or _has_other_names(kind.item_type)
    if pa.types.is_list(kind):
        return _has_other_names(kind.value_type)
    return pa.types.is_struct(kind) and any(_has_other_names(part.type) for part in kind)


def _place(fields: Collection[pa.Field], place: pa.Field, present: Collection[str]) -> Column:
    """Return a column of a row's origin; null if the source doesn't have it."""
    if place.name not in present:
        return F.lit(None).cast(sql_type(place.type)).alias(place.name)
    if place.name != PAYLOAD:
        return F.col(place.name)
    # Only rows that can't be events keep their payload.
    nulls = [F.col(quoted(field.name)).isNull() for field in fields if not field.nullable]
    unfit = reduce(or_, nulls, F.col(UNREADABLE).isNotNull())
    return F.when(unfit, F.col(PAYLOAD)).alias(PAYLOAD)


def _decoded(
    reader: DataStreamReader | DataFrameReader,
    source: Source,
    fields: Collection[pa.Field],
    keys: Collection[str],
) -> DataFrame:
    payload: PayloadFormat
    match source:
        case KafkaTopics(payload=payload):
            raw = _messages(reader, source)
        case JsonLines(payload=payload):
            lines = reader.options(**source.options).text(os.fspath(source.path))
            value = F.col("value").cast("binary").alias(PAYLOAD)
            path = F.col("_metadata.file_path").alias("file_path")
            raw = lines.where(F.trim("value") != F.lit("")).select(value, path)
        case _:
            found = f"`source` must be a source of events, found {type(source).__name__}"
            raise SpecError(found, "pass KafkaTopics(..) or JsonLines(..)")
    raw = without_long(raw, payload.max_bytes)
    if not isinstance(payload, Avro):
        return with_json(raw, payload, fields, keys)
    check_extra("avro", "fastavro", "the payload Avro")
    from sessionkit.addons.sources.avro import with_avro  # noqa: PLC0415 (an extra)

    return with_avro(raw, payload, fields)


def _messages(reader: DataStreamReader | DataFrameReader, source: KafkaTopics) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": source.servers,
        "subscribe": ",".join(source.topics),
        "startingOffsets": source.starting,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": str(bool(source.headers)),
        **source.options,
    }
    loaded = reader.format("kafka").options(**options).load()
    places = [name for name in KafkaTopics.origin_columns if name != PAYLOAD]
    position = [F.col(name.removeprefix("kafka_")).alias(name) for name in places]
    headers = {column: _header(name) for column, name in source.headers.items()}
    texts = [text.alias(column) for column, (text, _) in headers.items()]
    reason = F.coalesce(*(fault for _, fault in headers.values()), F.lit(None).cast("string"))
    return loaded.select(F.col("value").alias(PAYLOAD), *position, *texts, reason.alias(UNREADABLE))


def _header(name: str) -> tuple[Column, Column]:
    """Return the text of a header, and the reason if it isn't UTF-8."""
    same_name = F.filter("headers", lambda header: header["key"] == name)
    value = F.try_element_at(same_name, F.lit(-1))["value"]
    text = value.cast("string")
    # Spark replaces bytes that aren't UTF-8 by a question mark.
    is_text = F.encode(text, "UTF-8") == value
    return F.when(is_text, text), F.when(~is_text, f"its header `{name}` isn't UTF-8")


def without_long(raw: DataFrame, most: int) -> DataFrame:
    """Replace each payload that's too long by null, and add the reason, which decoders keep."""
    size = F.length(PAYLOAD)
    words = F.lit("its payload has "), size, F.lit(f" bytes, more than the {most} of `max_bytes`")
    reason = F.when(size > most, F.concat(*words))
    if UNREADABLE in raw.columns:
        reason = F.coalesce(UNREADABLE, reason)
    short = F.when(size <= most, F.col(PAYLOAD))
    return raw.withColumn(UNREADABLE, reason).withColumn(PAYLOAD, short)
