"""The odd values of each type in a table of Delta or Iceberg: as they were, or refused."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionkit import SpecError
from tests.support.borders import KINDS, OUT, expected, frame_of, read_back
from tests.support.lakes import DELTA, FOLDERS, lake_of
from tests.support.table_sinks import write, writer_of


@pytest.mark.parametrize("kind", [DELTA, FOLDERS])
def test_every_value_is_read_back_from_a_lake_as_it_was(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    """In one micro-batch; a duration is refused, and so is what contains one."""
    lake = lake_of(kind, spark, tmp_path)
    border = OUT["Delta, Iceberg"]
    kinds = [name for name in KINDS if name not in border.kinds]
    frame = frame_of(spark, kinds, border.equal())
    write(writer_of(lake.sink("borders", ()), frame.schema), frame)

    assert expected(border.equal()) == read_back(spark.table(lake.name("borders")))
    for name in border.kinds:
        refused = frame_of(spark, [name], [])
        with pytest.raises(SpecError, match=f"`{name}`"):
            writer_of(lake.sink(f"of_{name}", ()), refused.schema).ledger(refused, None)
