"""The rows of a group cross to Spark on a stream as objects, some at a time, and come out equal."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from sessionkit._arrays import INSTANT
from sessionkit._engine.counts import COUNTS_OF, Counts
from sessionkit._engine.wire.outbound import KEPT, ROWS_OF_A_FRAME, BatchOutput, row_frames

COUNTED = Counts(events=5, rows=3)
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [2**53 + 1, None, -1],
    pa.bool_(): [True, None, False],
    pa.string(): ["grüße", None, ""],
    pa.binary(): [b"\x00", None, b""],
    pa.date32(): [date(1, 1, 1), None, date(9999, 12, 31)],
    INSTANT: [datetime(1, 1, 1, tzinfo=UTC), None, datetime(2026, 3, 8, 7, 0, 0, 1, tzinfo=UTC)],
    pa.list_(pa.string()): [["a", "b"], None, []],
    pa.float64(): [0.5, -0.0, float("inf")],
}


def rows_of(times: int, places: slice) -> pa.Table:
    columns = [pa.array(values[places] * times, kind) for kind, values in VALUES.items()]
    return pa.table(columns, names=list(map(str, VALUES)))


def read(values: "pd.Series[Any]", kind: pa.DataType) -> pa.Array:
    """Read a column as Spark's worker does."""
    crosses_as = pa.int64() if kind == INSTANT else kind
    found = pa.Array.from_pandas(values, mask=values.isna().to_numpy(), type=crosses_as)
    return found.cast(kind)


def test_the_test_values_cover_every_type_that_crosses_unchanged() -> None:
    assert KEPT | {pa.float64()} == set(VALUES)


@pytest.mark.parametrize("places", [slice(3), slice(0, 3, 2)], ids=["with nulls", "without"])
def test_a_frame_has_no_more_rows_than_spark_takes_at_once(places: slice) -> None:
    """No frame has more rows than Spark takes at once; the last one has the counts too."""
    rows = rows_of(ROWS_OF_A_FRAME - 1, places)

    frames = [*row_frames(BatchOutput(rows, COUNTED), (7,))]

    whole, rest = divmod(rows.num_rows, ROWS_OF_A_FRAME)
    assert [ROWS_OF_A_FRAME] * whole + [rest + 1] == list(map(len, frames))
    values = pd.concat(frames, ignore_index=True)
    assert [[*COUNTS_OF(COUNTED), 7]] == values.pop("_counts").dropna().tolist()
    found = [read(values.iloc[:-1, place], kind) for place, kind in enumerate(VALUES)]
    assert rows == pa.table(found, names=rows.column_names)


def test_a_group_without_rows_has_counts() -> None:
    """They are a row of their own."""
    (frame,) = row_frames(BatchOutput(rows_of(0, slice(3)), COUNTED))

    (row,) = frame.to_dict("records")
    assert [*COUNTS_OF(COUNTED)] == row.pop("_counts")
    assert {None} == set(row.values())


def test_a_date_crosses_as_a_date_not_as_an_instant() -> None:
    """A date crosses as a date, not as an instant that a time zone could move."""
    (frame,) = row_frames(BatchOutput(pa.table({"day": [date(2026, 3, 8)]}), COUNTED))

    assert date(2026, 3, 8) == frame["day"][0]
    assert not isinstance(frame["day"][0] + timedelta(1), datetime)
