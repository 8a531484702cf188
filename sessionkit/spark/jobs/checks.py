"""Checks of a call before its query starts: columns that fit the spec, options that go together."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from sessionkit._engine.wire.outbound import packed_columns
from sessionkit.errors import SchemaError, SpecError
from sessionkit.spark._columns import (
    WHOLE_MICROS,
    in_nanoseconds,
    near,
    time_problem,
    twice_problems,
)
from sessionkit.spec.base import AnySpec
from sessionkit.spec.session import SessionSpec
from sessionkit.state._collections import (
    AttrsType,
    DictType,
    Field,
    ListType,
    OptionalType,
    TupleType,
    inner_type,
)
from sessionkit.state._derived import EnumType, LiteralType
from sessionkit.state._scalars import StrType
from sessionkit.state._types import FieldType, type_name

WATERMARK_METADATA: Final = "spark.watermarkDelayMs"


def check_not_chained(spec: AnySpec, name: str) -> None:
    """Refuse an argument that doesn't go with `carries_watermark`."""
    if spec.output_event_time is not None:
        found = (
            f"`{name}` doesn't go with `carries_watermark`, whose rows stateful operators may read"
        )
        hint = (
            f"leave `{name}` out, or read the rows in a second query, without `carries_watermark`"
        )
        raise SpecError(found, hint)


def check_chained_columns(spec: AnySpec) -> None:
    """Check that rows which stateful operators may read cross as they are."""
    for name in packed_columns(spec)[:1]:
        found = f"`carries_watermark` can't have `{name}`: rows with a column of its type cross "
        found += "packed to Spark, which then can't read their event time"
        owner = next(column.owner for column in spec.named if column.name == name)
        without = "" if name in spec.keys else f"leave {owner} out, or "
        hint = f"{without}leave `carries_watermark` out and read the rows in a second query"
        raise SpecError(found, hint)


def check_input(frame: DataFrame, spec: AnySpec) -> None:
    """Check that the columns of a frame fit the spec, and name all that don't at once."""
    schema, refuses_null = frame.schema, spec.inputs.nulls == "refuse"
    times = [] if spec.event_time is None else [spec.event_time]
    read = [wire.field.name for wire in spec.wire_columns] + times
    problems = [*twice_problems(frame, dict.fromkeys(read))]
    # Under "pages", Spark requires a watermark even if the spec has none.
    if frame.isStreaming and (
        spec.watermark_delay is not None or (spec.clock is None and spec.storage.layout == "pages")
    ):
        problems += _watermarks(schema, spec)
    for name in times:
        if (problem := time_problem(schema, name)) is not None:
            problems.append(problem)
        elif refuses_null and schema[name].nullable:
            problems.append(_nullable(name, "event_time"))
    for wire in spec.wire_columns:
        path = spec.event.__name__ if wire.role == "event" else wire.role
        problems += _fields(schema, [wire.field], path, refuses_null=refuses_null)
    if problems:
        raise _misfit(problems)


def check_keys(frame: DataFrame, spec: AnySpec) -> None:
    """Check that a stream has the key columns of a spec, and no watermark of its own."""
    fields = _fields(frame.schema, spec.key_fields, "key")
    watermarks, twice = _watermarks(frame.schema, spec), twice_problems(frame, spec.keys)
    if problems := [*watermarks, *twice, *fields]:
        raise _misfit(problems)


def _misfit(problems: Sequence[tuple[str, str]]) -> SchemaError:
    if len(problems) == 1:
        return SchemaError(*problems[0])
    lines = [f"{problem} ({hint})" for problem, hint in problems]
    title = f"{len(problems)} columns don't fit the spec:"
    return SchemaError("\n  ".join([title, *lines]), "fix each one as its brackets say")


def _watermarks(schema: T.StructType, spec: AnySpec) -> Iterator[tuple[str, str]]:
    """Yield the watermarks of a stream: Spark refuses a second one at the first micro-batch."""
    hint = "remove withWatermark: the `watermark_delay` of the spec declares it. "
    if isinstance(spec, SessionSpec):
        hint += "In place of a deduplication before, write inputs=Inputs(drop_duplicates_for=...)"
    else:
        hint += "Let a deduplication before be a query of its own, whose table this one reads"
    for column in schema.fields:
        if WATERMARK_METADATA in column.metadata:
            yield f"a watermark is already declared, on `{column.name}`", hint


def _fields(
    struct: T.StructType, fields: Iterable[Field], path: str, *, refuses_null: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield a problem for each column, or field of a struct, that isn't as declared."""
    for field in fields:
        field_path = f"{path}.{field.name}"
        if field.name not in struct.names:
            found = f"the column `{field.name}` ({field_path}) is missing; the frame has"
            yield f"{found} {', '.join(struct.names)}", near(field.name, struct.names)
            continue
        column = struct[field.name]
        yield from _mismatches(column.dataType, field.type, field_path)
        if refuses_null and column.nullable and not isinstance(field.type, OptionalType):
            yield _nullable(field.name, field_path)


def _nullable(name: str, path: str) -> tuple[str, str]:
    found = f"`{name}` ({path}) may be null, and the spec says nulls='refuse'"
    hint = "leave `nulls` out: rows with a null in it are then rejected"
    if path == "event_time":
        return found, hint
    if path.startswith("key."):
        return found, f'{hint}; or fill it first, such as F.coalesce("{name}", F.lit(...))'
    return found, f"declare the field `... | None`; or {hint}"


def _mismatches(actual: T.DataType, kind: FieldType, path: str) -> Iterator[tuple[str, str]]:
    """Yield a problem for each part of a column that isn't of the declared type."""
    kind = inner_type(kind)
    kind = kind.base if isinstance(kind, EnumType | LiteralType) else kind
    match kind, actual:
        case ListType(), T.ArrayType():
            yield from _mismatches(actual.elementType, kind.item, f"{path}[]")
        case DictType(), T.MapType():
            yield from _mismatches(actual.keyType, kind.key, f"{path} key")
            yield from _mismatches(actual.valueType, kind.value, f"{path}[]")
        case AttrsType(), T.StructType():
            yield from _fields(actual, kind.fields, path)
        case TupleType(), T.StructType() if actual.names == [field.name for field in kind.arrow]:
            for column, item in zip(actual.fields, kind.items, strict=True):
                yield from _mismatches(column.dataType, item, f"{path}.{column.name}")
        case TupleType(), _:
            text, _ = _mismatch(actual, kind, path)
            yield text, "use a struct with the fields _0, _1 and so on, or an attrs class"
        case StrType(), T.StringType():
            collation = getattr(actual, "collation", "UTF8_BINARY")
            if path.startswith("key.") and collation != "UTF8_BINARY":
                text = f"`{path}` has the collation {collation}: equal keys may have other bytes"
                yield text, 'cast it: col(..).cast("string collate UTF8_BINARY")'
        case _:
            column_type = type(actual).__name__.removesuffix("Type")
            if kind.facts is None or column_type not in kind.facts.columns:
                yield _mismatch(actual, kind, path)


def _mismatch(actual: T.DataType, kind: FieldType, path: str) -> tuple[str, str]:
    text = f"`{path}` is declared {type_name(kind)}, but the column is {actual.simpleString()}"
    if in_nanoseconds(actual):
        return text, WHOLE_MICROS
    if isinstance(actual, T.TimestampNTZType):
        return text, 'cast it in the time zone it was written in: .cast("timestamp_ltz")'
    if path.startswith("key.") and isinstance(actual, T.FloatType | T.DoubleType):
        return text, "a float can't be a key, equal values may differ: cast it to decimal or string"
    hint = kind.facts.hint if kind.facts is not None else ""
    return text, hint or "change the declaration, or cast the column"
