"""What has changed in a group: of many rows, and where what Spark says isn't all."""

from datetime import UTC, datetime, timedelta

import attrs
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.visits import View, visits
from sessionkit import StateCorruptedError, Storage
from sessionkit._engine.shell.storage import Stored, changed_memory, changed_rows, logic_of
from sessionkit.testing import SessionDriver
from sessionkit.testing.drivers.query import stored_rows

ROWS = st.dictionaries(st.integers(0, 60), st.floats(), min_size=20, max_size=60)


@given(ROWS, ROWS)
def test_each_row_that_differs_is_named_once(
    before: dict[int, float], others: dict[int, float]
) -> None:
    """Wherever it is among many, in whatever order they come, NaN or not."""
    made, removed = dict([*others.items()][:5]), {*[*others][-3:]}
    after = {name: one for name, one in {**made, **before, **made}.items() if name not in removed}

    found = changed_rows(table(before), table(after), "name")

    expected = [
        *(("new", name, repr(after[name])) for name in after.keys() - before.keys()),
        *(("gone", name, repr(before[name])) for name in before.keys() - after.keys()),
        *(
            ("changed", name, repr(after[name]))
            for name in after.keys() & before.keys()
            if repr(before[name]) != repr(after[name])
        ),
    ]
    rows = [(row["change"], row["name"], repr(row["value"][0])) for row in found.to_pylist()]
    assert sorted(expected) == sorted(rows)


def table(rows: dict[int, float]) -> pa.Table:
    return pa.table({"name": [*rows], "value": pa.array([[one] for one in rows.values()])})


def test_a_page_that_spark_does_not_name_is_missed() -> None:
    """The directory says that it is another one, so nothing is left out in silence."""
    spec = attrs.evolve(visits, storage=Storage(layout="pages", bucket_count=1))
    driver, stored = SessionDriver(spec), [Stored()]
    for minute in range(2):
        at = datetime(2026, 3, 8, 12, tzinfo=UTC) + timedelta(minutes=minute)
        driver.add("ann", at, View(url="/", seconds=1.0))
        driver.run_batch()
        ((group, row),) = stored_rows(driver.snapshot())
        stored.append(Stored(row[:-1]))

    with pytest.raises(StateCorruptedError, match="page 0 is missing"):
        changed_memory(logic_of(spec), group, stored[1], stored[2], set())
