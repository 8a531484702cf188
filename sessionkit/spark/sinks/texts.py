"""
Write values as text so that a reader gets them back, or refuse them before a query starts.

By default, Spark's writers of JSON and CSV cut times to milliseconds, and CSV strips texts and
mixes up quotes and backslashes. `docs/how-to/write-to-tables.md` says how to read what is written.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionkit._arguments import quoted
from sessionkit.errors import SinkError, SpecError
from sessionkit.spark.sinks.values import Files, Kafka

TIMES: Final[Mapping[str, str]] = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    # An offset of earlier centuries has seconds, which `XXX` would cut.
    "timeZone": "UTC",
}
WRITTEN: Final[Mapping[str, Mapping[str, str]]] = {
    "json": TIMES,
    "csv": {
        **TIMES,
        # A quote is doubled, as in RFC 4180: behind a backslash, `a\` would end in no quote.
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
}
"""The options of Spark's writer of each format that is text."""
NO_RECORDS: Final = ("text", "xml")
CSV_NULL: Final = r"\N"
"""The text that readers of CSV are told to take for a null, instead of an empty one."""
NO_FOLDER: Final = ("", "__HIVE_DEFAULT_PARTITION__")
"""The texts to which Spark gives the folder of null."""
SINGLE: Final = (
    T.BooleanType,
    T.IntegralType,
    T.FractionalType,  # decimals too
    T.StringType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.DayTimeIntervalType,
    T.YearMonthIntervalType,
)


def written_as(sink: Files) -> Mapping[str, str]:
    """Return the options of Spark's writer of a format."""
    return WRITTEN.get(sink.format.lower(), {})


def rows_for(sink: object, frame: DataFrame) -> DataFrame:
    """Return rows as a sink of Spark's own takes them."""
    match sink:
        case Kafka():
            return _messages(frame)
        case Files():
            return _unmistaken(frame, sink)
    return frame


def _messages(frame: DataFrame) -> DataFrame:
    """Return rows as JSON with their ids as keys; rows without ids are messages already."""
    ids = _ids_of(frame.schema)
    if not ids:
        return frame
    topic = [F.col("topic")] if "topic" in frame.columns else []
    key = F.coalesce(*ids).cast("string").alias("key")
    return frame.select(key, *topic, F.to_json(F.struct("*"), {**TIMES}).alias("value"))


def _ids_of(schema: T.StructType) -> list[str]:
    return [name for name in ("session_id", "event_id") if name in schema.names]


def check_messages(schema: T.StructType, sink: Kafka) -> None:
    """Refuse rows that can't become messages, as Spark would do in words of its own."""
    if not _ids_of(schema) and "value" not in schema.names:
        found = "Kafka needs a column `value`, or `session_id` or `event_id`; the columns are "
        hint = 'select it, such as F.to_json(F.struct("*")).alias("value")'
        raise SpecError(found + ", ".join(schema.names), hint)
    if sink.topic is None and "topic" not in schema.names:
        found = "Kafka has no `topic`, and the frame has no column `topic`"
        raise SpecError(found, 'write Kafka(servers, "visits")')


def check_texts(schema: T.StructType, sink: Files | Kafka) -> None:
    """Refuse columns whose values a reader of a sink's text would not get back."""
    if isinstance(sink, Kafka):
        if _ids_of(schema):
            _check_types(schema.fields, "JSON", _unlike_json)
        return
    _check_folders(schema, sink)
    kind = sink.format.lower()
    fields = [field for field in schema.fields if field.name not in sink.partition_by]
    if kind in NO_RECORDS:
        found = f"the format {kind} keeps neither nulls nor line breaks as they are"
        raise SpecError(found, "write another format, such as json or parquet")
    if kind == "json":
        _check_types(fields, "the format json", _unlike_json)
    if kind == "csv":
        _check_types(fields, "the format csv", _unlike_csv)
        if len(fields) == 1:
            found = f"the only column of the format csv is `{fields[0].name}`, whose nulls would "
            found += "be empty lines, which readers skip"
            raise SpecError(found, "write another format, such as json or parquet")


def _check_folders(schema: T.StructType, sink: Files) -> None:
    for name in sink.partition_by:
        kind = schema[name].dataType
        if isinstance(kind, T.TimestampType | T.BinaryType):
            found = f"partition_by names `{name}`, a {_shown(kind)}, which no name of a folder "
            found += "keeps as it is"
            raise SpecError(found, 'name a day or a text, such as F.to_date("session_start")')


def _check_types(
    fields: Iterable[T.StructField], what: str, unlike: Callable[[T.DataType], Iterator[str]]
) -> None:
    for field in fields:
        for problem in unlike(field.dataType):
            found = f"{what} can't hold `{field.name}`, a {_shown(field.dataType)}: {problem}"
            raise SpecError(found, "write parquet or a table, or cast or drop the column")


def _shown(kind: T.DataType) -> str:
    return kind.simpleString()[:99]


def _unlike_csv(kind: T.DataType) -> Iterator[str]:
    if not isinstance(kind, SINGLE):
        yield "a cell is a single value"


def _unlike_json(kind: T.DataType) -> Iterator[str]:
    """Yield what a reader of JSON would not get back of a type, or of a type within it."""
    match kind:
        case T.ArrayType():
            yield from _unlike_json(kind.elementType)
        case T.MapType():
            if not isinstance(kind.keyType, T.StringType):
                yield "keys of JSON are texts"
            yield from _unlike_json(kind.valueType)
        case T.StructType():
            for field in kind.fields:
                yield from _unlike_json(field.dataType)
        case _ if not isinstance(kind, (*SINGLE, T.BinaryType)):
            yield f"JSON has no {_shown(kind)}"


def _unmistaken(frame: DataFrame, sink: Files) -> DataFrame:
    """Return rows whose query ends at a text that readers would take for a null."""
    is_csv = sink.format.lower() == "csv"
    taken: dict[str, tuple[str, ...]] = {}
    for field in frame.schema.fields:
        if isinstance(field.dataType, T.StringType):
            if field.name in sink.partition_by:
                taken[field.name] = NO_FOLDER
            elif is_csv:
                taken[field.name] = (CSV_NULL,)
    return frame.withColumns({name: _or_end(name, texts) for name, texts in taken.items()})


def _or_end(name: str, taken: tuple[str, ...]) -> Column:
    """Return a column that ends the query at some of its texts."""
    text = F.col(quoted(name))
    found = f"`{name}` is {' or '.join(map(repr, taken))}, which readers of the files take for null"
    error = SinkError(found, f"replace it before: F.when(F.col({name!r}) == ..., ...)")
    return F.when(text.isin(*taken), F.raise_error(str(error))).otherwise(text)
