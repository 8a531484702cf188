"""Columns of frames that PySpark has no class for."""

from datetime import datetime
from typing import Any

import attrs
import pytest
from pyspark.errors import PySparkValueError
from pyspark.sql import types as T

from sessionkit import SessionSpec
from sessionkit import aggregates as agg
from sessionkit.spark._columns import check_event_time, check_frame
from sessionkit.spark.jobs.checks import check_keys
from tests.support.refusals import refusal, says


class TimestampLTZNanosType(T.DataType):
    """The type as a later PySpark may have it."""

    def simpleString(self) -> str:  # noqa: N802 (PySpark's name)
        return "timestamp_ltz(9)"


@attrs.frozen
class Anything:
    """An event without fields."""


class Frame:
    """A frame as far as the checks look at it; its schema may be one that PySpark can't read."""

    isStreaming = False  # noqa: N815 (Spark's names)
    sparkSession: Any = None  # noqa: N815

    def __init__(self, schema: T.StructType | str) -> None:
        self._schema = schema
        self.columns = schema.names if isinstance(schema, T.StructType) else []

    @property
    def schema(self) -> T.StructType:
        if isinstance(self._schema, str):
            raise PySparkValueError(self._schema)
        return self._schema


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "[CANNOT_PARSE_DATATYPE] Unable to parse datatype. timestamp_ltz(9)..",
            "timestamp_ltz(9)",
        ),
        (
            "[CANNOT_PARSE_DATATYPE] Unable to parse datatype. timestamp_ntz(7)..",
            "timestamp_ntz(7)",
        ),
        ("[UNSUPPORTED_OPERATION] timestamp_ltz_nanos is not supported.", "timestamp_ltz_nanos"),
    ],
)
def test_a_schema_with_nanoseconds_has_a_text_of_its_own(text: str, found: str) -> None:
    """PySpark can't read any column of such a frame, on classic Spark and on Connect."""
    told = refusal(check_frame, Frame(text), "frame")

    assert says(told, f"`frame` has a column of nanoseconds ({found})", '.cast("timestamp_ltz")')


def test_any_other_schema_that_pyspark_cannot_read_is_left_to_it() -> None:
    """Its own error comes through."""
    with pytest.raises(PySparkValueError, match="geometry"):
        check_frame(Frame("Unable to parse datatype. geometry"), "frame")


def test_a_column_of_nanoseconds_is_told_to_be_cast() -> None:
    """As the event time, and as any other."""
    schema = T.StructType([T.StructField("since", TimestampLTZNanosType())])
    rules: Any = {"event_time": "ts", "gap": "1h", "watermark_delay": "0 seconds"}
    pages = {"pages": agg.count()}
    spec: Any = SessionSpec.aggregate(Anything, pages, keys={"since": datetime}, **rules)

    told = refusal(check_event_time, schema, "since")
    assert says(told, "`since` is in nanoseconds (timestamp_ltz(9))", '.cast("timestamp_ltz")')
    told = refusal(check_keys, Frame(schema), spec)
    assert says(told, "`key.since`", "but the column is timestamp_ltz(9)", '.cast("timestamp_ltz")')
