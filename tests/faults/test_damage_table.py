"""Each kind of damage to each folder of a checkpoint: what a start says of it, and a deep check."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from pyspark.sql import SparkSession

from sessionkit.spark import check_checkpoint, start_query
from sessionkit.spark._logs import OFFSETS
from sessionkit.spark.jobs.transform_with_state import PROVIDER
from sessionkit.spark.sinks.values import AtLeastOnce
from tests.support.counted_views import spec_of, views
from tests.support.faults.disks import DAMAGES
from tests.support.faults.job import CHANGELOGS, PACKAGE, PROVIDERS
from tests.support.figures import FIGURES
from tests.support.spark_settings import changed
from tests.support.streams import FileStream, needs_own_process

pytestmark = [pytest.mark.long, pytest.mark.since_spark("4.0", "Spark 3.5 can't read state")]

HOUR_MS: Final = 3_600_000
FILES: Final = {
    "metadata": "metadata",
    "offsets": "offsets/{last}",
    "commits": "commits/{last}",
    "sources": "sources/0/{file}",
    "state: changes": "state/0/1/{version}.*",
    "state: schema": "state/0/0/_metadata/schema",
    "state: _metadata": "state/0/_metadata/metadata",
}
"""The newest file of each folder."""
UNSEEN: Final = {
    "commits: watermark moved forwards",
    "sources: one bit",
    "sources: another query's",
    "sources: another query's folder",
}
"""What neither can see; docs/builders/damage.md says why."""


@attrs.frozen
class Found:
    """What came of a damage."""

    start: str
    deep: str


def newest(checkpoint: Path, pattern: str) -> Path:
    """Return the file of a checkpoint that a pattern means."""
    last = max(int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*"))
    files = (file.stem for file in (checkpoint / "sources/0").glob("[0-9]*"))
    names = {"last": last, "version": f"[{last}-{last + 1}]", "file": max(map(int, files))}
    # A micro-batch without data may have changed nothing.
    return max(checkpoint.glob(pattern.format(**names)), key=lambda file: file.stat().st_size)


def uncheck(path: Path) -> None:
    """Remove the checksum that a local file system keeps, as others keep none."""
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def replaced(path: Path, source: Path) -> None:
    """Put another file, or another folder, in the place of one."""
    if source.is_dir():
        shutil.rmtree(path)
        shutil.copytree(source, path)
        return
    shutil.copyfile(source, path)
    uncheck(path)


def older(path: Path) -> None:
    """Put what the file was one micro-batch before into its place."""
    number = path.name.partition(".")[0]
    replaced(path, path.with_name(path.name.replace(number, str(int(number) - 1), 1)))


def move(log: str, key: str, by_ms: int, root: Path) -> None:
    path = newest(root, FILES[log])
    first, about, *others = path.read_text().splitlines()
    found = json.loads(about)
    found[key] += by_ms
    path.write_text("\n".join([first, json.dumps(found), *others]))
    uncheck(path)


def swap(checkpoint: Path) -> None:
    state = checkpoint / "state/0"
    for source, target in (("0", "x"), ("1", "0"), ("x", "1")):
        (state / source).rename(state / target)
    if (state / "1/_metadata").exists():
        (state / "1/_metadata").rename(state / "0/_metadata")


def harm_newest(harm: Callable[[Path], None], pattern: str, root: Path) -> None:
    """Do something to the newest file of a folder."""
    path = newest(root, pattern)
    harm(path)
    uncheck(path)


def take_from(other: Path, pattern: str, root: Path) -> None:
    """Put the newest file of another run into the place of that of a folder."""
    replaced(newest(root, pattern), newest(other, pattern))


def take_folder(other: Path, folder: str, root: Path) -> None:
    """Put a folder of another run into the place of one."""
    replaced(root / folder, other / folder)


def lose_folder(folder: str, root: Path) -> None:
    shutil.rmtree(root / folder)


def harms(other: Path) -> dict[str, Callable[[Path], None]]:
    """Return all damages to a checkpoint; `other` is the one of another run."""
    found: dict[str, Callable[[Path], None]] = {"none": uncheck}
    for name, pattern in FILES.items():
        for kind, harm in DAMAGES.items():
            found[f"{name}: {kind}"] = partial(harm_newest, harm, pattern)
        if "{" in pattern:
            found[f"{name}: older copy"] = partial(harm_newest, older, pattern)
        found[f"{name}: another query's"] = partial(take_from, other, pattern)
    for folder in ("offsets", "commits", "sources", "state/0/1", "state/0"):
        found[f"{folder}: the folder missing"] = partial(lose_folder, folder)
    for folder in ("offsets", "commits", "sources", "state/0/1", "state"):
        found[f"{folder}: another query's folder"] = partial(take_folder, other, folder)
    found["state: partitions swapped"] = swap
    for by_ms, word in ((HOUR_MS, "forwards"), (-HOUR_MS, "backwards")):
        for log, key in (("offsets", "batchWatermarkMs"), ("commits", "nextBatchWatermarkMs")):
            found[f"{log}: watermark moved {word}"] = partial(move, log, key, by_ms)
    return found


def begun(spark: SparkSession, folder: Path, minutes: tuple[int, ...]) -> FileStream:
    """Return a stopped query after some micro-batches, with rows in it that some have left."""
    stream = FileStream(spark, spec_of("buckets"), folder)
    stream.put(*map(views, minutes))
    run(stream, [])
    return stream


def run(stream: FileStream, rows: list[Any]) -> None:
    """Run a query over all files, and keep its rows."""
    sink = AtLeastOnce(lambda frame, number: rows.extend(map(tuple, frame.collect())))
    output, checkpoint = stream.output(), stream.checkpoint
    query = start_query(
        output, sink=sink, trigger="availableNow", checkpoint=checkpoint, spec=stream.spec
    )
    query.awaitTermination()


def said(act: Callable[[], Any], root: Path) -> str:
    """Return in a few words what is raised; nothing where nothing is."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - it is what is looked at
        text = str(error)
        ours = re.search(r"(?:the |its )?[^\n]*\n\nHint:", text)
        line = (ours[0] if ours else text).splitlines()[0].replace(str(root), "")
        place = str(root) in text
        return f"{type(error).__name__}{'' if place else ' (no path)'}: {line[:170]}"
    return ""


@pytest.fixture(params=[*product(sorted(PROVIDERS), "12")], ids="-".join)
def store(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """Let queries keep their state in one of Spark's stores, with an offset log of a format."""
    store, offsets = request.param
    provider = f"{PACKAGE}.{PROVIDERS[store]}"
    with changed(spark, {PROVIDER: provider, CHANGELOGS: "true", OFFSETS: offsets}):
        yield store


def test_damage_to_a_checkpoint_is_named_or_leaves_the_right_rows(
    spark: SparkSession, store: str, tmp_path: Path, record_property: Any
) -> None:
    """Each is named by the start or by the deep check, or leaves the right rows."""
    needs_own_process(spark)
    one = begun(spark, tmp_path / "one", (0, 20, 40, 45))
    other = begun(spark, tmp_path / "other", (0, 21, 40, 46))
    one.put(views(60), views(130))
    expected: list[Any] = []
    found: dict[str, Found] = {}
    for name, harm in harms(Path(other.checkpoint)).items():
        copy = attrs.evolve(one, folder=tmp_path / "copy", files=one.source)
        shutil.rmtree(copy.folder, ignore_errors=True)
        shutil.copytree(one.checkpoint, copy.checkpoint)
        root = Path(copy.checkpoint)
        harm(root)
        path, spec = copy.checkpoint, copy.spec
        deep = said(partial(check_checkpoint, path, spec, deep=True, spark=spark), root)
        rows: list[Any] = []
        start = said(partial(run, copy, rows), root)
        expected = expected or rows
        is_right = sorted(map(repr, rows)) == sorted(map(repr, expected))
        start = start or ("right rows" if is_right else "WRONG ROWS")
        found[name] = Found(start, deep or "passes")
        line = f"{store} | {name} | {start} | {deep or 'passes'}"
        record_property(FIGURES, line)
        if "DAMAGE_TABLE" in os.environ:
            with Path(os.environ["DAMAGE_TABLE"]).open("a") as table:
                table.write(f"{line}\n")

    assert expected
    silent = [name for name, each in found.items() if each == Found("WRONG ROWS", "passes")]
    assert set(silent) <= UNSEEN
