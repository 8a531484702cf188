"""A deep check of a checkpoint: damage to files and partitions is named, and good ones pass."""

import json
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import attrs
import pytest
from pyspark.sql import SparkSession

from sessionkit import (
    EventTimeGap,
    Functions,
    KeyState,
    KeyTimes,
    SessionSpec,
    SpecError,
    StatefulSpec,
    Storage,
    UserFunctionError,
)
from sessionkit.errors import StateCorruptedError, StateError
from sessionkit.spark import Files, check_checkpoint, read_state, start_query
from sessionkit.state import RenamedFrom
from tests.support.counted_views import USERS, View, begun, views
from tests.support.faults.disks import DAMAGES as FILE_DAMAGES
from tests.support.figures import FIGURES
from tests.support.streams import FileStream, begun_at

RULES: dict[str, Any] = {
    "keys": {"user": str},
    "event_time": "at",
    "timeout": EventTimeGap("30m"),
    "watermark_delay": "10m",
}


@attrs.define
class Before:
    views: int = 0
    gone: str = "x"


@attrs.define
class After:
    pages: Annotated[float, RenamedFrom("views")] = 0.0
    tags: list[str] = attrs.field(factory=lambda: ["new"])


@attrs.define
class Words:
    """A state to which a function leads."""

    words: list[str] = attrs.field(factory=list)


def count(state: Before, event: View) -> None:
    state.views += event.number


def count_pages(state: After, event: View) -> None:
    state.pages += event.number


def add_words(state: Words, event: View) -> None:
    state.words += ["+"] * event.number


@attrs.define
class Texts:
    pages: str = ""


def count_texts(state: Texts, event: View) -> None:
    state.pages += "+" * event.number


def merge(left: Any, right: Any) -> Any:
    raise AssertionError


def spelled(old: Before) -> Words:
    return Words([str(old.views)])


def broken(old: Before) -> Words:
    raise ValueError(old.gone)


def spec_of(layout: Any, update: Callable[..., Any], buckets: int = 8, **storage: Any) -> Any:
    """Return a spec of sessions in a layout, or of keys in buckets."""
    if layout != "keys":
        stored = Storage(layout=layout, bucket_count=buckets, **storage)
        return SessionSpec(logic=Functions(update=update, merge=merge), storage=stored, **RULES)
    cls = update.__annotations__["state"]

    def process(key: Any, events: list[View], state: KeyState[Any], times: KeyTimes) -> Any:
        found = state.get(cls())
        for event in events:
            update(found, event)
        state.set(found)

    stored = Storage(bucket_count=buckets, **storage)
    return StatefulSpec(state=cls, result=cls, process=process, storage=stored, **RULES)


LAYOUTS = ["buckets", "keys", "pages"]
SHORT_AND_LONG = [
    "buckets",
    *(pytest.param(layout, marks=pytest.mark.long) for layout in LAYOUTS if layout != "buckets"),
]


Streams = Callable[[str], FileStream]


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Streams:
    """Return a stopped query of a layout, after two micro-batches with data."""
    return cache(
        lambda layout: begun(spark, spec_of(layout, count), tmp_path_factory.mktemp(layout))
    )


def states(stream: FileStream, spec: Any) -> set[str]:
    found = read_state(stream.checkpoint, spec, spark=stream.spark)
    assert set(USERS) == {one.key.user for one in found}
    return {repr(one.state) for one in found}


@pytest.mark.parametrize("layout", SHORT_AND_LONG)
def test_a_query_goes_on_over_the_checkpoint_of_an_older_class(
    streams: Streams, layout: str, tmp_path: Path
) -> None:
    """By rules, or by a function; what neither covers is refused before the query starts."""
    before = streams(layout)
    shutil.copytree(before.checkpoint, tmp_path / "checkpoint")
    stream = attrs.evolve(before, folder=tmp_path, spec=spec_of(layout, count_pages))
    upgraded = spec_of(layout, add_words, upgrade={1: spelled})
    assert {"Words(words=['2'])"} == states(stream, upgraded)
    failing = spec_of(layout, add_words, upgrade={1: broken})
    check_checkpoint(stream.checkpoint, failing, spark=stream.spark)
    with pytest.raises(UserFunctionError, match=r"`upgrade\[1\]` .* raised ValueError: x, for Key"):
        check_checkpoint(stream.checkpoint, failing, deep=True, spark=stream.spark)

    stream.put(views(2))
    stream.run()

    assert {"After(pages=3.0, tags=['new'])"} == states(stream, stream.spec)
    check_checkpoint(stream.checkpoint, stream.spec, deep=True, spark=stream.spark)
    with pytest.raises(StateError, match="`Texts.pages` is str in the class, float in"):
        check_checkpoint(stream.checkpoint, spec_of(layout, count_texts), spark=stream.spark)


# -- damage ------------------------------------------------------------------------------------


def largest(folder: Path) -> Path:
    """Return the file of a partition with the most state in it."""
    named = [file for file in folder.iterdir() if file.name[0].isdigit()]
    return max(named, key=lambda file: file.stat().st_size)


def lose_the_first(state: Path) -> None:
    shutil.rmtree(state / "0")


def lose_the_last(state: Path) -> None:
    shutil.rmtree(state / "1")


def empty_a_partition(state: Path) -> None:
    lose_the_last(state)
    (state / "1").mkdir()


def lose_a_file(state: Path) -> None:
    largest(state / "1").unlink()


def cut_a_file(state: Path) -> None:
    file = largest(state / "1")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def change_a_file(state: Path) -> None:
    """Change a byte of a file, and lose the checksum that the file system has of it."""
    file = largest(state / "1")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def swap_partitions(state: Path) -> None:
    for source, target in (("0", "x"), ("1", "0"), ("x", "1")):
        (state / source).rename(state / target)
    metadata = state / "1" / "_metadata"
    if metadata.exists():
        metadata.rename(state / "0" / "_metadata")


DAMAGES: list[Callable[[Path], None]] = [
    lose_the_first,
    lose_the_last,
    empty_a_partition,
    lose_a_file,
    cut_a_file,
    change_a_file,
    swap_partitions,
]


@pytest.mark.parametrize("layout", ["buckets", pytest.param("pages", marks=pytest.mark.long)])
def test_damage_to_files_and_partitions_is_named(
    streams: Streams, layout: str, tmp_path: Path, record_property: Any
) -> None:
    """With the partition or the file; none passes, and none ends in a trace of Java."""
    stream = streams(layout)
    for damage in DAMAGES:
        copy = tmp_path / damage.__name__
        shutil.copytree(stream.checkpoint, copy)
        damage(copy / "state" / "0")
        with pytest.raises(StateCorruptedError, match="damaged") as found:
            check_checkpoint(str(copy), stream.spec, deep=True, spark=stream.spark)
        record_property(FIGURES, f"{layout}: {damage.__name__}: {found.value}".split("\n")[0])
        text = str(found.value)
        assert str(copy) in text
        assert "\tat " not in text
        assert text.endswith("Hint: restore the checkpoint from a copy, or start a new one")


def alter(file: Path, key: str, value: int) -> None:
    first, metadata, *sources = file.read_text().splitlines()
    changed = json.dumps({**json.loads(metadata), key: value})
    file.write_text("\n".join([first, changed, *sources]))
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


@pytest.mark.nightly
def test_rows_of_another_time_than_the_checkpoint_are_named(
    streams: Streams, tmp_path: Path
) -> None:
    """State that is older than the offsets holds sessions that are closed; newer, those to come."""
    stream = streams("buckets")
    for name, key, value, text in (
        (
            "older",
            "batchWatermarkMs",
            4_000_000_000_000,
            "is older than the last micro-batch",
        ),
        ("newer", "batchTimestampMs", 1, "was written after the last micro-batch"),
    ):
        copy = tmp_path / name
        shutil.copytree(stream.checkpoint, copy)
        last = max(int(file.name) for file in (copy / "offsets").glob("[0-9]*"))
        alter(copy / "offsets" / f"{last}", key, value)
        if key == "batchWatermarkMs":
            # The logs agree, so only the state can say that it is older.
            for number in (last - 1, last):
                alter(copy / "commits" / f"{number}", "nextBatchWatermarkMs", value)
        with pytest.raises(StateCorruptedError, match=text):
            check_checkpoint(str(copy), stream.spec, deep=True, spark=stream.spark)


def test_a_checkpoint_without_a_finished_micro_batch_passes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """There is nothing to be damaged."""
    spec = spec_of("buckets", count)
    begun_at(tmp_path)
    check_checkpoint(str(tmp_path), spec, deep=True, spark=spark)


@attrs.define
class Again:
    """The state as it was, with a new meaning of `views`."""

    views: int = 0
    gone: str = "x"


@attrs.define
class Without:
    gone: str = "x"


@attrs.define
class Renamed:
    """The state as it was, with another name for `views`."""

    clicks: int = 0


def count_again(state: Again, event: View) -> None:
    state.views += event.number


def keep_gone(state: Without, event: View) -> None:
    """Count nothing."""


def count_clicks(state: Renamed, event: View) -> None:
    state.clicks += event.number


@pytest.mark.nightly
def test_old_values_of_a_field_that_is_added_again_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Users whom the second version hasn't seen still have values that the others have lost."""
    first, second, third = (spec_of("buckets", add) for add in (count, keep_gone, count_again))
    stream = FileStream(spark, first, tmp_path)
    stream.put(views(0))
    stream.run()
    check_checkpoint(stream.checkpoint, third, spark=spark)
    stream.put(views(1).slice(0, 1))
    attrs.evolve(stream, spec=second).run()

    for deep in (False, True):
        with pytest.raises(StateError, match="`Again.views` is in a row of .* newer one"):
            check_checkpoint(stream.checkpoint, third, deep=deep, spark=spark)
    with pytest.raises(StateError, match='clicks: Annotated.*RenamedFrom."views"'):
        check_checkpoint(stream.checkpoint, spec_of("buckets", count_clicks), spark=spark)


def replace(path: Path, source: Path) -> None:
    """Replace a file, and forget the checksum that the file system has of it."""
    shutil.copyfile(source, path)
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


@pytest.mark.nightly
def test_changes_of_another_micro_batch_are_named(streams: Streams, tmp_path: Path) -> None:
    """An older file is whole and has the right rows of its time; each says when it was written."""
    stream = streams("buckets")
    shutil.copytree(stream.checkpoint, tmp_path / "copy")
    partition = tmp_path / "copy/state/0/1"
    replace(partition / "2.delta", partition / "1.delta")
    found = r"version 2 of .*/state/0/1 has changes of mi"
    with pytest.raises(StateCorruptedError, match=found):
        check_checkpoint(str(tmp_path / "copy"), stream.spec, deep=True, spark=stream.spark)

    start: Any = partial(
        start_query,
        stream.output(),
        sink=Files("parquet", tmp_path / "out"),
        trigger="availableNow",
        checkpoint=tmp_path / "copy",
        check="deep",
    )
    with pytest.raises(StateCorruptedError, match=found):
        start(spec=stream.spec)
    with pytest.raises(SpecError, match="it needs the spec\n\nHint: pass spec="):
        start()
    with pytest.raises(SpecError, match="`check` must be 'rules' or 'deep', found 'all'"):
        start(check="all")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("first", "found"),
    [
        (USERS, "has changed since"),
        pytest.param(USERS[:1], "is gone", marks=pytest.mark.long),
    ],
)
def test_a_single_row_that_is_older_or_gone_is_named(
    spark: SparkSession, first: list[str], found: str, tmp_path: Path
) -> None:
    """A snapshot lacks what one user's event has changed; the changes have it."""
    stream = FileStream(spark, spec_of("keys", count, buckets=64), tmp_path)
    stream.put(views(0).slice(0, len(first)), views(1).slice(1, 1))
    stream.run()
    check_checkpoint(stream.checkpoint, stream.spec, deep=True, spark=spark)
    partitions = list(Path(stream.checkpoint, "state/0").glob("[01]"))
    place = max(partitions, key=lambda part: (part / "2.delta").stat().st_size)
    # From nothing, a snapshot and its changes are the same bytes.
    replace(place / "2.snapshot", place / "1.delta")

    text = rf"the row of \(-?\d+,\) that micro-batch 1 has left in .*/{place.name} {found}"
    with pytest.raises(StateCorruptedError, match=text):
        check_checkpoint(stream.checkpoint, stream.spec, deep=True, spark=spark)


@pytest.mark.nightly
def test_damage_to_what_a_checkpoint_says_of_its_operators_is_named(
    streams: Streams, tmp_path: Path
) -> None:
    """By each check, and by a start; Spark raises what its parser does, or reads no state."""
    stream = streams("buckets")
    for number, harm in enumerate(FILE_DAMAGES.values()):
        copy = attrs.evolve(stream, folder=tmp_path / f"{number}", files=stream.source)
        shutil.copytree(stream.checkpoint, copy.checkpoint)
        file = Path(copy.checkpoint) / "state/0/_metadata/metadata"
        harm(file)
        (file.parent / ".metadata.crc").unlink(missing_ok=True)
        for deep in (False, True):
            with pytest.raises(StateCorruptedError, match="damaged: .*/state/0/_metadata"):
                check_checkpoint(copy.checkpoint, copy.spec, deep=deep, spark=stream.spark)
    with pytest.raises(StateCorruptedError, match="damaged: .*/state/0/_metadata"):
        copy.run_to(Files("parquet", tmp_path / "out"))
