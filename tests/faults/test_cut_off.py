"""Each change to a file after which a process may be killed, one after the other."""

import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionkit import SessionkitError
from sessionkit.errors import StateCorruptedError
from sessionkit.spark import ExactlyOnce, Files, Routes, erase_key, migrate, read_seed
from tests.support.erased_visits import KEY, SPEC, users, views
from tests.support.figures import FIGURES, Record
from tests.support.hourly_query import SPEC as HOURLY
from tests.support.hourly_query import Query, Store, hour
from tests.support.local_files import cuts
from tests.support.spark_settings import FOR_TINY_BATCHES, changed
from tests.support.streams import FileStream, with_gap

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture(autouse=True)
def _one_partition(spark: SparkSession) -> Iterator[None]:
    with changed(spark, FOR_TINY_BATCHES):
        yield


def test_an_erasure_that_is_killed_at_any_step_can_be_tried_again(
    spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    """The request is whole or none; a second one erases the key once, and clears what is left."""
    base = FileStream(spark, SPEC, tmp_path / "base", with_rejected=True, erases=True)
    base.put(views((KEY, 0, "/"), ("bob", 1, "/")))
    base.run()
    whole = []
    for cut in cuts(spark):
        folder = tmp_path / f"{cut.after}"
        for name in ("checkpoint", "out"):
            shutil.copytree(base.folder / name, folder / name)
        stream = FileStream(spark, SPEC, folder, files=base.source, with_rejected=True, erases=True)
        requests = Path(stream.checkpoint, "erasures")
        with cut.made():
            erase_key(stream.checkpoint, SPEC, KEY, spark=spark)
        whole.append(len([*requests.glob("*.parquet")]))

        erase_key(stream.checkpoint, SPEC, KEY, spark=spark)
        assert not [*requests.glob("_temporary")]
        counts = stream.run()
        assert whole[-1] in {0, 1}
        assert 1 == sum(one.erasures for one in counts)
        assert [("erased", KEY)] == [(row["kind"], row["user"]) for row in stream.rows()]
        assert ["bob 1"] == users(stream)
    record_property(FIGURES, f"erase_key: cut off {len(whole) - 1} times, {whole.count(1)} asked")
    assert sorted(whole) == whole


def test_a_migration_that_is_killed_at_any_step_can_be_tried_again(
    spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    """There is no seed or all of it; a second try writes it; the old checkpoint stays as it is."""
    base = FileStream(spark, SPEC, tmp_path)
    base.put(views((KEY, 0, "/"), ("bob", 1, "/")))
    base.run()
    before, there = content_of(Path(base.checkpoint)), []
    for cut in cuts(spark):
        to = tmp_path / f"seed {cut.after}"
        with cut.made():
            migrate(base.checkpoint, SPEC, SPEC, to, spark=spark)
        try:
            seed = read_seed(to, spark=spark)
            there.append(True)
        except SessionkitError:
            there.append(False)
            seed = migrate(base.checkpoint, SPEC, SPEC, to, spark=spark)
        assert seed == read_seed(to, spark=spark)
        assert 2 == spark.read.parquet(f"{to}/{seed.rows}").count()
    record_property(FIGURES, f"migrate: cut off {len(there) - 1} times, {sum(there)} seeds")
    assert before == content_of(Path(base.checkpoint))
    assert sorted(there) == there


def test_a_first_micro_batch_of_a_seed_that_is_killed_at_any_step_goes_on(
    spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    """The query is started again, and has each session of the seed and each event once."""
    old, times, refused = Query(spark, tmp_path / "old"), 0, 0
    for _ in range(2):
        old.run(ExactlyOnce((store := Store(tmp_path / "old.db")).write, store.last_batch))
    seed = migrate(old.stream.checkpoint, HOURLY, HOURLY, tmp_path / "seed", spark=spark)
    old.stream.put(hour(2))
    for cut in cuts(spark):
        store = Store(tmp_path / f"{cut.after}.db")
        new = FileStream(
            spark,
            HOURLY,
            tmp_path / f"{cut.after}",
            shape=lambda frame: with_gap(seed.unread(frame)),
            seed=seed,
            files=old.stream.source,
        )
        sink = ExactlyOnce(store.write, store.last_batch)
        with cut.made():
            new.run_to(sink)
        if Path(new.checkpoint, "commits", "0").exists():
            break
        try:
            new.run_to(sink)
        except StateCorruptedError as error:
            follow(error)
            refused += 1
            new.run_to(sink)
        assert 2 == len(store.rows())
        assert [2, 2] == [one.events for one in new.open()]
        times += 1
    found = f"the first micro-batch of a seed: cut off {times} times, {refused} refused"
    record_property(FIGURES, found)
    assert times > 10
    assert refused < 10


def follow(error: SessionkitError) -> None:
    """Check that an error is short, and delete what its hint names."""
    message, _, hint = str(error).partition("\n\nHint: ")
    assert len(str(error).replace(str(Path(hint.split()[-1]).parents[1]), "")) <= 300
    assert "cut off" in message.splitlines()[0]
    shutil.rmtree(hint.removeprefix("delete "))


@pytest.mark.parametrize("layout", ["alone", "routes"])
def test_a_start_that_is_killed_at_any_step_goes_on(
    layout: str, spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    """After each change to a file of the first start, the query starts, or says how to go on."""
    base, said = Query(spark, tmp_path / "base"), []
    base.stream.put(hour(0), hour(1))
    for cut in cuts(spark):
        if cut.after % 3:  # each takes seconds
            continue
        folder = tmp_path / f"{cut.after}"
        new = FileStream(
            spark,
            HOURLY,
            folder,
            with_rejected=layout == "routes",
            shape=with_gap,
            files=base.stream.source,
        )
        files = Files("json", folder / "out")
        sink = files if layout == "alone" else Routes(session=files, rejected=None)
        with cut.made():
            new.run_to(sink)
        if Path(new.checkpoint, "commits", "0").exists():
            break
        try:
            new.run_to(sink)
        except SessionkitError as error:
            follow(error)
            said.append("refused")
            new.run_to(sink)
        else:
            said.append("goes on")
        rows = files.read(spark).select("key", "session_id").collect()
        assert 2 == len(rows), cut.after
        if layout == "routes":
            assert rows == spark.read.json(str(files.path)).select("key", "session_id").collect()
    counted = {text: said.count(text) for text in sorted({*said})}
    record_property(FIGURES, f"starts that were cut off, {layout}: {counted}")
    assert len(said) >= 20


def content_of(folder: Path) -> dict[str, str]:
    return {
        str(path): sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
