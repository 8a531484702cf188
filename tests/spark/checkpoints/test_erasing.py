"""What is left of an erased key in the files of a checkpoint."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sessionkit.spark import batch_counts, erase_key
from sessionkit.spark._settings import is_connect, release_of
from tests.support.erased_visits import KEY, SPEC, users, views
from tests.support.spark_settings import changed
from tests.support.stored_bytes import files_with
from tests.support.streams import FileStream

AT_ONCE = {
    "spark.sql.streaming.minBatchesToRetain": "1",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
    "spark.sql.streaming.stateStore.unloadOnCommit": "true",
}
"""Settings under which the next micro-batches leave nothing of old ones."""


@pytest.mark.long
@pytest.mark.parametrize("victim", ["worker", "JVM"])
def test_no_byte_of_an_erased_key_stays_after_a_kill(
    victim: str, spark: SparkSession, tmp_path: Path
) -> None:
    """The job ends in the erasing micro-batch, once before and once after the state is stored."""
    if release_of(spark.version) < (4, 1) or is_connect(spark):
        pytest.skip("before 4.1, old versions are deleted in the background, once a minute")
    stream = FileStream(spark, SPEC, tmp_path, with_rejected=True, erases=True)
    checkpoint, weapon = Path(stream.checkpoint), tmp_path / "weapon"
    stream.put(views((KEY, 0, "/"), ("bob", 1, "/")), views((KEY, 2, "/")))
    stream.run()
    assert files_with(checkpoint, KEY)
    weapon.write_text(victim)
    erase_key(stream.checkpoint, SPEC, KEY, spark=spark)
    stream.put(views(("bob", 2, str(weapon))))

    if victim == "worker":
        with suppress(PySparkException):
            stream.run()
    else:
        code = f"from tests.support import erased_visits as e; e.run_once({str(tmp_path)!r})"
        command = [sys.executable, "-c", code]
        assert 0 != subprocess.run(command, check=False).returncode
    assert not weapon.exists()
    assert [f"{KEY} 2", "bob 1"] == users(stream)
    (erasing,) = stream.progress()
    stream.forget_end_of(int(erasing["batchId"]))
    for file in (tmp_path / "out" / "_spark_metadata").glob(f"*{erasing['batchId']}*"):
        file.unlink()  # or the sink would skip the micro-batch
    (again,) = stream.progress()
    assert [1, 1] == [batch_counts(one).erasures for one in (erasing, again)]
    assert ["bob 2"] == users(stream)
    with changed(spark, AT_ONCE):
        stream.put(views(("bob", 4, "/")), views(("bob", 5, "/")))
        stream.run()

    assert not files_with(checkpoint, KEY)
    assert ["bob 4"] == users(stream)
    assert [("erased", KEY)] == [(row["kind"], row["user"]) for row in stream.rows()]
