"""A driver reads the rows of a frame of pandas as Spark reads the frame, also what is missing."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionkit import SessionSpec
from sessionkit import aggregates as agg
from sessionkit.errors import DriverError
from sessionkit.spark import sessionize
from sessionkit.testing import SessionDriver, at
from tests.support.spark_settings import changed

ARROW: Final = {"spark.sql.execution.arrow.pyspark.enabled": "true"}
NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
INSTANT: Final = pd.ArrowDtype(pa.timestamp("us", "UTC"))


NA: Final[Any] = pd.NA


def column(value: Any, missing: Any, dtype: Any = object) -> Any:
    """Return a value and a missing one, the way that pandas has them under a type."""
    return pd.Series([value, missing], dtype=dtype)


YES: Final = True


COLUMNS: Final[Mapping[str, tuple[Any, Any]]] = {
    "float_nan": (float, column(1.5, np.nan, "float64")),
    "single_nan": (float, column(1.5, np.nan, "float32")),
    "float_na": (float, column(1.5, None, "Float64")),
    "float_arrow": (float, column(1.5, None, "double[pyarrow]")),
    "float_object_none": (float, column(1.5, None)),
    "float_object_nan": (float, column(1.5, np.nan)),
    "float_object_na": (float, column(1.5, pd.NA)),
    "float_object_nat": (float, column(1.5, pd.NaT)),
    "int_na": (int, column(1, None, "Int64")),
    "int_arrow": (int, column(1, None, "int64[pyarrow]")),
    "int_object_none": (int, column(1, None)),
    "int_object_nan": (int, column(1, np.nan)),
    "int_object_na": (int, column(1, pd.NA)),
    "bool_na": (bool, column(YES, None, "boolean")),
    "bool_object_none": (bool, column(YES, None)),
    "bool_object_nan": (bool, column(YES, np.nan)),
    "text_na": (str, column("a", None, "string")),
    "text_arrow": (str, column("a", None, "string[pyarrow]")),
    "text_none": (str, column("a", None)),
    "text_nan": (str, column("a", np.nan)),
    "text_object_na": (str, column("a", pd.NA)),
    "text_nat": (str, column("a", pd.NaT)),
    "category": (str, column("a", None, "category")),
    "time_nat": (datetime, column(NOON, pd.NaT, "datetime64[ns, UTC]")),
    "time_arrow": (datetime, column(NOON, None, INSTANT)),
    "time_object_none": (datetime, column(NOON, None)),
    "time_object_nan": (datetime, column(NOON, np.nan)),
    "span_nat": (timedelta, column(timedelta(seconds=5), pd.NaT, "timedelta64[ns]")),
    "day_none": (date, column(date(2026, 1, 1), None)),
    "day_nat": (date, column(date(2026, 1, 1), pd.NaT)),
    "day_nan": (date, column(date(2026, 1, 1), np.nan)),
    "decimal_none": (Decimal, column(Decimal("1.5"), None)),
    "decimal_nan": (Decimal, column(Decimal("1.5"), np.nan)),
    "decimal_own_nan": (Decimal, column(Decimal("1.5"), Decimal("NaN"))),
    "bytes_none": (bytes, column(b"a", None)),
    "bytes_nan": (bytes, column(b"a", np.nan)),
    "list_none": (list[float], column([1.5, 2.5], None)),
}
"""What may be missing, by names: of which type the spec has it, and the column."""
Event: Any = attrs.make_class(
    "Event",
    {name: attrs.field(type=kind | None) for name, (kind, _) in COLUMNS.items()},
    frozen=True,
)
EVENTS: Final = SessionSpec.per_event(
    Event, keys={"user": str}, event_time="ts", gap="30m", watermark_delay="10m"
)


def frame(*, converted: bool) -> pd.DataFrame:
    """Return two rows of ann: one with every value, and one in which every one is missing."""
    own = {"user": ["ann", "ann"], "ts": [NOON, NOON + timedelta(minutes=1)]}
    rows = pd.DataFrame({**own, **{name: values for name, (_, values) in COLUMNS.items()}})
    if not converted:
        return rows
    # pandas has no type of its own for these.
    return rows.astype({"time_arrow": object}).convert_dtypes()


def by_the_driver(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the fields of the events that a driver reads."""
    driver = SessionDriver(EVENTS)
    given: list[Any] = rows.to_dict("records")
    for row in given:
        driver.add_row(row)
    driver.run_batch()
    driver.advance_watermark_to(at("23:00"))
    driver.run_until_idle()
    assert [] == driver.take_rejections()
    return [{name: getattr(one, name) for name in COLUMNS} for one in driver.take_results()]


@pytest.mark.parametrize("converted", [False, True], ids=["as they are", "convert_dtypes"])
def test_what_pandas_misses_is_a_null(converted: bool) -> None:
    """Of each type of a column, and however pandas says that there is nothing."""
    rows = frame(converted=converted)
    values, missing = by_the_driver(rows)

    assert {} == {name: value for name, value in missing.items() if value is not None}
    assert [] == [name for name, value in values.items() if value is None]


@pytest.mark.parametrize("converted", [False, True], ids=["as they are", "convert_dtypes"])
def test_the_driver_reads_what_spark_reads(spark: SparkSession, converted: bool) -> None:
    """Spark makes its frame of the same one, with Arrow."""
    rows = frame(converted=converted)
    with changed(spark, ARROW):
        # Decimals have as many digits there as the longest; the spec's have 38.
        read = spark.createDataFrame(rows)
        found = sessionize(read, EVENTS).orderBy("number").collect()

    assert by_the_driver(rows) == [{name: in_utc(row[name]) for name in COLUMNS} for row in found]


def in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@attrs.frozen
class Reading:
    url: str
    seconds: float | None
    parts: list[float | None] = attrs.field(factory=list)


MEANS: Final = SessionSpec.aggregate(
    Reading,
    {"mean": agg.mean("seconds"), "rows": agg.count()},
    keys={"user": str},
    event_time="ts",
    gap="30m",
    watermark_delay="10m",
)


def test_a_missing_number_counts_for_no_mean_and_a_missing_text_is_quarantined() -> None:
    """As on Spark: where the field may be null, and where it may not."""
    rows: list[Any] = pd.DataFrame(
        {
            "user": ["ann", "ann", "ann", None],
            "ts": [NOON, NOON, NOON, NOON],
            "url": ["/", "/", np.nan, "/"],
            "seconds": [1.5, np.nan, 2.5, 2.5],
        }
    ).to_dict("records")
    driver = SessionDriver(MEANS)
    for row in rows:
        driver.add_row({**row, "parts": []})
    driver.run_batch()
    driver.advance_watermark_to(at("23:00"))
    driver.run_batch()

    assert [(1.5, 2)] == [(one.mean, one.rows) for one in driver.take_results()]
    assert 2 == len(driver.take_rejections("quarantined"))


def test_a_null_of_pandas_within_a_list_is_a_null() -> None:
    """Of whatever kind the list is."""
    driver = SessionDriver(MEANS)
    for parts in ([1.5, np.nan], np.array([1.5, np.nan]), [1.5, pd.NA]):
        row = {"user": "ann", "ts": NOON, "url": "/", "seconds": 1.0, "parts": parts}
        driver.add_row(row)

    assert [[1.5, None]] * 3 == [row["parts"] for row in driver.snapshot().unread]


def test_an_event_may_have_nan_as_a_value_and_no_other_missing_one() -> None:
    """NaN is a number that Spark has too; NaT and NA are nulls wherever they come."""
    driver = SessionDriver(MEANS)
    driver.add("ann", NOON, Reading("/", float("nan")))
    driver.add("ann", NOON, Reading("/", NA))
    driver.add(pd.NA, NOON, Reading("/", 1.0))
    driver.run_batch()
    driver.advance_watermark_to(at("23:00"))
    driver.run_batch()

    (row,) = driver.take_results()
    assert np.isnan(row.mean)
    assert [None] == [one.key.user for one in driver.take_rejections("quarantined")]


def test_history_of_pandas_is_read_as_its_rows_are() -> None:
    """A row without a time is quarantined, not left out, and one with a time is checked."""
    history: list[Any] = pd.DataFrame(
        {
            "user": ["ann", "bob"],
            "ts": column(NOON, pd.NaT, "datetime64[ns, UTC]"),
            "seconds": [1.5, np.nan],
        }
    ).to_dict("records")
    rows = [{**row, "url": "/", "parts": []} for row in history]
    driver = SessionDriver.backfill(MEANS, rows, until=at("23:00"))

    assert [(1.5, 1)] == [(one.mean, one.rows) for one in driver.take_results()]
    assert ["its event time is null"] == [one.reason for one in driver.take_rejections()]
    with pytest.raises(DriverError, match="time zone"):
        SessionDriver.backfill(MEANS, [{**rows[0], "ts": datetime(2026, 1, 1)}], until=at("23:00"))  # noqa: DTZ001


@attrs.frozen
class Item:
    amount: int | None


def test_whole_numbers_that_pandas_has_as_floats_are_refused_with_what_helps() -> None:
    """So they are on Spark, where the column is a double."""
    spec = SessionSpec.per_event(
        Item, keys={"user": str}, event_time="ts", gap="30m", watermark_delay="10m"
    )
    rows = pd.DataFrame({"user": ["ann", "ann"], "ts": [NOON, NOON], "amount": [1, np.nan]})
    given: list[Any] = rows.to_dict("records")
    driver = SessionDriver(spec)
    with pytest.raises(
        DriverError, match=r"`amount` must be an int.*\s+Hint: .*convert_dtypes"
    ) as refused:
        driver.add_row(given[0])
    assert "1.0" in str(refused.value)

    converted: list[Any] = rows.convert_dtypes().to_dict("records")
    for row in converted:
        driver.add_row(row)
    assert [1, None] == [row["amount"] for row in driver.snapshot().unread]
