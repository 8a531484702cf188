"""Logs of a checkpoint that miss something or contradict each other are named before a start."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionkit.errors import StateCorruptedError, UnsupportedError
from sessionkit.spark._logs import Logs, check_logs, exists, folder_texts, progress_of

HOUR_MS = 3_600_000
ID = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"


def planned(number: int, watermark_ms: int, version: str = "v1") -> str:
    """Return the text of a planned micro-batch, in one of Spark's formats."""
    about = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": 1, "conf": {}}
    name = "0:" if version == "v2" else ""
    return "\n".join([version, json.dumps(about), name + json.dumps({"logOffset": number})])


def finished(watermark_ms: int) -> str:
    """Return the text of a finished micro-batch."""
    return "\n".join(["v1", json.dumps({"nextBatchWatermarkMs": watermark_ms})])


def entry(number: int) -> str:
    """Return the text of what a file source has read."""
    return "\n".join(["v1", json.dumps({"path": "file:/in/a", "timestamp": 1, "batchId": number})])


def checkpoint(folder: Path, version: str = "v1") -> Path:
    """Write the logs of four micro-batches, each an hour of event time; the last may not finish."""
    texts = {"metadata": json.dumps({"id": ID})}
    for number in range(4):
        texts[f"offsets/{number}"] = planned(number, number * HOUR_MS, version)
        texts[f"commits/{number}"] = finished((number + 1) * HOUR_MS)
        texts[f"sources/0/{number}"] = entry(number)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_logs_of_a_sound_checkpoint_are_accepted(
    spark: SparkSession, tmp_path: Path, version: str
) -> None:
    """With the last micro-batch finished or not, with entries deleted by Spark, and without any."""
    root = checkpoint(tmp_path / "whole", version)
    check_logs(str(root), spark)
    assert ('{"logOffset": 3}',) == progress_of(str(root), spark).offsets
    (root / "commits/3").unlink()
    check_logs(str(root), spark)
    for name in ("offsets/0", "offsets/1", "commits/0", "commits/1"):
        (root / name).unlink()
    (root / "sources/0/2").rename(root / "sources/0/2.compact")
    for name in ("sources/0/0", "sources/0/1"):
        (root / name).unlink()
    check_logs(str(root), spark)
    check_logs(str(tmp_path / "none"), spark)


def without(name: str) -> Callable[[Path], None]:
    """Return what removes a file or a folder."""

    def harm(root: Path) -> None:
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return harm


def written(name: str, text: str) -> Callable[[Path], None]:
    """Return what writes another text into a file."""

    def harm(root: Path) -> None:
        (root / name).write_text(text)

    return harm


HARMS: dict[str, tuple[Callable[[Path], None], str]] = {
    "no metadata": (without("metadata"), "/metadata is missing"),
    "half of metadata": (written("metadata", '{"id":'), "/metadata doesn't have the id"),
    "no id in metadata": (written("metadata", '{"id": "x"}'), "/metadata doesn't have the id"),
    "no commits": (without("commits"), "/commits/2 is missing"),
    "no offsets": (without("offsets"), "/offsets/3 is missing"),
    "the last offset is gone": (without("offsets/3"), "/offsets/3 is missing"),
    "no log of the source": (without("sources"), "/sources/0/3 is missing"),
    "the last of the source is gone": (without("sources/0/3"), "/sources/0/3 is missing"),
    "the second of the source is gone": (without("sources/0/1"), "/sources/0/1 is missing"),
    "the last of the source is an older one": (
        written("sources/0/3", entry(2)),
        "/sources/0/3 doesn't have the files of its micro-batch",
    ),
    "half of the source's log": (
        written("sources/0/3", entry(3)[:-9]),
        "/sources/0/3 doesn't have the files of its micro-batch",
    ),
    "an empty offset": (written("offsets/3", ""), "/offsets/3 is missing"),
    "half an offset": (written("offsets/3", "v1\n{"), "/offsets/3 is missing or unreadable"),
    "half a commit": (written("commits/3", "v1\n{"), "/commits/3 is missing or unreadable"),
    "a watermark ahead": (
        written("offsets/3", planned(3, 4 * HOUR_MS)),
        "/offsets/3 has the watermark 14400000 ms, but micro-batch 2 has left 10800000 ms",
    ),
    "a watermark behind": (
        written("offsets/3", planned(3, 2 * HOUR_MS)),
        "/offsets/3 has the watermark 7200000 ms, but micro-batch 2 has left 10800000 ms",
    ),
    "a watermark that falls": (
        written("commits/3", finished(2 * HOUR_MS)),
        "/commits/3 leaves the watermark 7200000 ms, but micro-batch 3 already had 10800000 ms",
    ),
}


@pytest.mark.parametrize(
    ("name", "version"),
    [*((name, "v1") for name in HARMS), ("no offsets", "v2"), ("an empty offset", "v2")],
)
def test_logs_that_do_not_agree_are_named(
    spark: SparkSession, tmp_path: Path, name: str, version: str
) -> None:
    """With the file that is missing, or that contradicts another, and what to do."""
    root = checkpoint(tmp_path, version)
    harm, text = HARMS[name]
    harm(root)

    with pytest.raises(StateCorruptedError, match=f"the checkpoint is damaged: .*{text}") as found:
        check_logs(str(root), spark)
    assert str(found.value).endswith("Hint: restore the checkpoint from a copy, or start a new one")


def test_a_format_that_is_not_known_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Rather than read as one that is."""
    root = checkpoint(tmp_path, "v3")
    with pytest.raises(UnsupportedError, match="/offsets is of format v3") as refused:
        check_logs(str(root), spark)
    assert "Hint: set spark.sql.streaming.offsetLog.formatVersion to 2" in str(refused.value)


SOURCES = {
    # What has which log, where some sources are read twice: readings, offsets, logs.
    "v1, one twice": ("v1", (0, 0), ["{a}", "{a}"], "00"),
    "v1, one twice, before Spark 4.3": ("v1", (0, 0), ["{a}"], "0"),
    "v1, one around another": ("v1", (0, 1, 0), ["{a}", "{b}", "{a}"], "010"),
    "v1, two": ("v1", (0, 1), ["{a}", "{a}"], "01"),
    "v2, one twice": ("v2", (0, 0), ["1:{a}"], "0"),
    "v2, one around another": ("v2", (0, 1, 0), ["2:{a}", "1:{b}"], "10"),
    "v2, eleven": ("v2", (), [f"{n}:{{}}" for n in (10, *range(10))], [*map(str, range(11))]),
    "v2, one twice, of an unknown query": ("v2", (), ["1:{a}"], "0"),
    "v2, named": ("v2", (0, 1), ["b:{b}", "a:{a}"], "ab"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_each_source_has_its_log(spark: SparkSession, name: str) -> None:
    """One that is read twice has one, whatever Spark writes down of it."""
    version, readings, offsets, logs = SOURCES[name]
    found = Logs("/cp", {0: [version, "{}", *offsets]}, {}).source_logs(0, spark, readings)
    assert [f"/cp/sources/{log}" for log in logs] == [log for _, log in found]


@pytest.mark.nightly
def test_without_the_query_one_log_is_of_one_source(spark: SparkSession, tmp_path: Path) -> None:
    """Where the offsets are equal, and there is no second log; else a log is missing."""
    root, about = checkpoint(tmp_path), planned(3, 3 * HOUR_MS)
    (root / "offsets/3").write_text(f"{about}\n{json.dumps({'logOffset': 3})}")
    check_logs(str(root), spark)
    assert (("file:/in/a",), ("file:/in/a",)) == progress_of(str(root), spark).files
    with pytest.raises(StateCorruptedError, match=r"/sources/1/3 is missing"):
        check_logs(str(root), spark, readings=(0, 1))
    (root / "offsets/3").write_text(f"{about}\n{json.dumps({'logOffset': 2})}")
    with pytest.raises(StateCorruptedError, match=r"/sources/1/2 is missing"):
        check_logs(str(root), spark)
    with pytest.raises(StateCorruptedError, match=r"and .*/sources/1 is missing"):
        progress_of(str(root), spark)


def test_a_span_ends_at_a_repartition() -> None:
    """Micro-batches 2, 5 and 6 are those of Spark's checkpoint manager, with other partitions."""
    partitions, read = (2, 2, 3, 3, 3, 2, 4, 4), (0, 1, 1, 2, 3, 3, 3, 4)

    def about(number: int) -> list[str]:
        conf = {"spark.sql.shuffle.partitions": str(partitions[number])}
        return [
            "v1",
            json.dumps({"batchTimestampMs": read[number], "conf": conf}),
            str(read[number]),
        ]

    logs = Logs("/cp", {number: about(number) for number in range(8)}, {})

    assert [(0, 1), (3, 4), (7, 7)] == logs.spans(-1, 7)
    assert [(4, 4)] == logs.spans(3, 6)
    assert [] == logs.spans(4, 6)
    assert [(1, 1)] == logs.spans(0, 1)
    assert [] == logs.spans(3, 3)
    assert [4, 1] == [Logs("/cp", logs.offsets, {n: []}).written for n in (6, 2)]


def test_a_path_is_read_as_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would take some of its characters for a pattern, and find another folder or none."""
    for name in ("a b", "[x]", "{a,b}", "a*b?", "100%"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "0").write_text("as it stands")

        assert {"0": "as it stands"} == folder_texts(spark, str(folder))
        assert exists(spark, str(folder), "[0-9]*")
        assert not exists(spark, str(folder), "[1-9]*")
    assert not exists(spark, str(tmp_path / "*"))


@attrs.define
class Purging:
    """A session in which a file is gone between the moment it's listed and the moment it's read."""

    spark: SparkSession
    file: Path
    reader: Any = None

    @property
    def read(self) -> Any:
        self.reader = self.spark.read
        return self

    def option(self, name: str, value: object) -> Any:
        self.reader = self.reader.option(name, value)
        return self

    def text(self, path: Any, **options: Any) -> DataFrame:
        listed: DataFrame = self.reader.text(path, **options)
        if options:  # it's read whole, rather than looked for
            self.file.unlink()
        return listed


@pytest.mark.cell("classic")
def test_an_entry_that_a_running_query_deletes_meanwhile_is_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark would end with a FileNotFoundException; the entry is an old one, which nobody needs."""
    for number in range(3):
        (tmp_path / f"{number}").write_text(f"{number}")
    purging: Any = Purging(spark, tmp_path / "0")

    assert {"1": "1", "2": "2"} == folder_texts(purging, str(tmp_path))
