"""A first start that was killed while Spark wrote its first offsets."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionkit import EventTimeGap
from sessionkit.errors import StateCorruptedError
from sessionkit.spark import Files
from tests.support.hourly_query import hour
from tests.support.session_specs import collecting
from tests.support.streams import FileStream, with_gap


def test_a_first_offset_that_was_half_written_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would refuse each start; the hint names the folder to delete, and the query starts."""
    stream = FileStream(spark, collecting(EventTimeGap("10 minutes")), tmp_path, shape=with_gap)
    sink = Files("parquet", tmp_path / "out")
    stream.put(hour(0), hour(1))
    stream.run_to(sink)
    checkpoint = Path(stream.checkpoint)
    for name in ("offsets", "commits", "state"):
        shutil.rmtree(checkpoint / name)
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / ".0.5f1c.tmp").write_text("v1\n{")
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(StateCorruptedError, match="the first start of the query was cut off") as no:
        stream.run_to(sink)

    message, _, hint = str(no.value).partition("\n\nHint: ")
    assert len(message.replace(str(tmp_path), "")) < 300
    shutil.rmtree(hint.removeprefix("delete "))
    stream.run_to(sink)
    assert 2 == len(stream.rows())
