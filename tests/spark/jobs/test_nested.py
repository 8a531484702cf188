"""Random nested events, with parts that are empty, null or missing, come back as they were sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from sessionkit import SessionSpec, Storage
from sessionkit.spark import sessionize
from tests.support.spark_settings import changed
from tests.support.streams import run_to_files


@attrs.frozen
class Leaf:
    names: list[str]
    counts: dict[str, list[int]]
    seen: datetime | None


@attrs.frozen
class Branch:
    """A part with lists of its own."""

    leaves: list[Leaf]
    leaf: Leaf | None
    numbers: list[int | None] | None


@attrs.frozen
class Tree:
    branches: list[Branch]
    table: list[list[str]]
    by_name: dict[str, list[Leaf]]
    branch: Branch | None
    pairs: dict[str, dict[str, list[float]]] | None


@attrs.frozen
class Shown:
    shown: Tree


@attrs.define
class Kept:
    event: Tree | None = None

    def update(self, event: Tree) -> None:
        self.event = self.event or event

    def finish(self, session: Any) -> Shown:
        assert self.event is not None
        return Shown(self.event)


TREES: Final = SessionSpec.of(
    Kept,
    keys={"number": int},
    event_time="ts",
    gap="10 minutes",
    watermark_delay="0 seconds",
    order="event_time",
    storage=Storage(bucket_count=2),
)

LEAF: Final = "struct<names:array<string>,counts:map<string,array<bigint>>,seen:timestamp>"
BRANCH: Final = f"struct<leaves:array<{LEAF}>,leaf:{LEAF},numbers:array<bigint>>"
PARTS: Final = {
    "branches": f"array<{BRANCH}>",
    "table": "array<array<string>>",
    "by_name": f"map<string,array<{LEAF}>>",
    "branch": BRANCH,
    "pairs": "map<string,map<string,array<double>>>",
}
SCHEMA: Final = ", ".join(
    ["number bigint", "ts timestamp", *(f"{name} {kind}" for name, kind in PARTS.items())]
)
NOON: Final = datetime(2026, 3, 8, 12, tzinfo=UTC)
ROWS_OF_A_BATCH: Final = 3
BATCHES: Final = 60


@attrs.frozen
class Growing:
    """
    Makes random parts, of which some kinds are never full within an Arrow batch.

    Attributes:
        random: What decides.
        bare: The kinds of lists that are all empty.
        missing: Whether what may be null always is.
    """

    random: Random
    bare: frozenset[str]
    missing: bool

    @classmethod
    def of(cls, random: Random) -> "Growing":
        kinds = ("names", "counts", "leaves", "numbers", "branches", "rows", "by_name", "pairs")
        share = random.choice([0, 0.3, 1])
        bare = frozenset(kind for kind in kinds if random.random() < share)
        return cls(random, bare, random.random() < 0.3)

    def count(self, kind: str) -> range:
        """Return as many places as a list of this kind has."""
        return range(0 if kind in self.bare else self.random.choice([0, 1, 3]))

    def maybe(self, value: Any) -> Any:
        return None if self.missing or self.random.random() < 0.3 else value

    def leaf(self) -> Row:
        names = [self.random.choice(["", "ü", "name"]) for _ in self.count("names")]
        counts = {f"k{place}": [place] * (place % 2) for place in self.count("counts")}
        return Row(names=names, counts=counts, seen=self.maybe(NOON))

    def leaves(self) -> list[Row]:
        return [self.leaf() for _ in self.count("leaves")]

    def branch(self) -> Row:
        numbers = self.maybe([self.maybe(2**53 + 1) for _ in self.count("numbers")])
        return Row(leaves=self.leaves(), leaf=self.maybe(self.leaf()), numbers=numbers)

    def tree(self) -> tuple[Any, ...]:
        pairs = {f"p{place}": {"x": [0.5] * place} for place in self.count("pairs")}
        return (
            [self.branch() for _ in self.count("branches")],
            [["", "cell"][: len(self.count("names"))] for _ in self.count("rows")],
            {f"n{place}": self.leaves() for place in self.count("by_name")},
            self.maybe(self.branch()),
            self.maybe(pairs),
        )


def trees(spark: SparkSession, seed: int) -> DataFrame:
    """Return events, a few of them without a time, in partitions of many small Arrow batches."""
    random = Random(seed)
    rows: list[tuple[Any, ...]] = []
    for _ in range(BATCHES):
        growing = Growing.of(random)
        for _ in range(ROWS_OF_A_BATCH):
            time = NOON + timedelta(seconds=len(rows))
            at = None if random.random() < 0.1 else time
            rows.append((len(rows), at, *growing.tree()))
    return spark.createDataFrame(rows, SCHEMA).coalesce(1)


@contextmanager
def small_arrow_batches(spark: SparkSession) -> Iterator[None]:
    """Let Spark send few rows at once, so that all of their lists may be empty."""
    with changed(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_OF_A_BATCH)}):
        yield


def by_number(frame: DataFrame) -> list[Row]:
    """Return the events of a frame, as Spark reads them."""
    return sorted(frame.select("number", F.struct(*PARTS).alias("tree")).collect())


def found(rows: DataFrame) -> list[Row]:
    """Return the events of sessions and those that were set aside."""
    tree = F.when(F.col("kind") == "session", F.col("shown")).otherwise(F.col("event"))
    return sorted(rows.select("number", tree.alias("tree")).collect())


def test_nested_events_survive_a_batch(spark: SparkSession) -> None:
    """Whatever is empty, null or missing in all rows of an Arrow batch, and at any depth."""
    for seed in (1, 2):
        events = trees(spark, seed)
        with small_arrow_batches(spark):
            rows = sessionize(events, TREES, with_rejected=True)

            assert by_number(events) == found(rows)


def test_nested_events_survive_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """The same, through stored state and through rows that were set aside."""
    events = trees(spark, 3)
    events.write.parquet(str(tmp_path / "in"))
    last = events.where("number = 0").withColumns(
        {"number": F.lit(-1).cast("bigint"), "ts": F.lit(NOON + timedelta(days=1))}
    )
    stream = spark.readStream.schema(events.schema).parquet(str(tmp_path / "in"))
    with small_arrow_batches(spark):
        for _ in range(2):
            run_to_files(sessionize(stream, TREES, with_rejected=True), tmp_path)
            last.write.mode("append").parquet(str(tmp_path / "in"))

        assert by_number(events) == found(spark.read.parquet(str(tmp_path / "out")))


# -- nulls inside -------------------------------------------------------------------------------


@attrs.frozen
class Item:
    sku: str
    price: int


@attrs.frozen
class Basket:
    items: list[Item]


@attrs.frozen
class Nested:
    """An event with a part of each shape."""

    number: int
    item: Item
    some: list[Item]
    pair: tuple[Item, ...]
    by_name: dict[str, Item]
    rows: list[list[Item]]
    basket: Basket
    baskets: list[Basket]
    numbers: list[int]
    counts: dict[str, int]
    maybe: Item | None
    some_maybe: list[Item | None]


@attrs.define
class Numbers:
    numbers: list[int] = attrs.field(factory=list)

    def update(self, event: Nested) -> None:
        self.numbers.append(event.number)


NESTED: Final = SessionSpec.of(
    Numbers,
    keys={"user": str},
    event_time="ts",
    gap="10 minutes",
    watermark_delay="0 seconds",
    order="event_time",
    storage=Storage(bucket_count=2),
)
ITEM: Final = "if(number = {}, null, named_struct('sku', 'shoe', 'price', 1L))"
NULLS: Final = {
    "item": (ITEM, "`event.item` is null"),
    "some": (f"array({ITEM})", "`event.some[0]` must be a Item"),
    "pair": (f"array({ITEM})", "`event.pair[0]` must be a Item"),
    "by_name": (f"map('a', {ITEM})", "`event.by_name['a']` must be a Item"),
    "rows": (f"array(array({ITEM}))", "`event.rows[0][0]` must be a Item"),
    "basket": (f"named_struct('items', array({ITEM}))", "`event.basket.items[0]` must be a Item"),
    "baskets": (
        f"array(named_struct('items', array({ITEM})))",
        "`event.baskets[0].items[0]` must be a Item",
    ),
    "numbers": ("array(nullif(number, {}))", "`event.numbers[0]` must be an int"),
    "counts": ("map('a', nullif(number, {}))", "`event.counts['a']` must be an int"),
    "maybe": (ITEM, None),
    "some_maybe": (f"array({ITEM})", None),
}
"""An expression of each shape, of whose fields Spark knows that they're never null, and what a
null in the row of its number gives."""


def with_parts(frame: DataFrame) -> DataFrame:
    """Add the parts, each with a null in the row of its number; a row of another has none."""
    parts = {
        name: F.expr(sql.format(number)) for number, (name, (sql, _)) in enumerate(NULLS.items())
    }
    return frame.withColumns(parts)


def judged(rows: list[Row]) -> tuple[list[int], dict[int, str]]:
    """Return the numbers of the events, and why others were quarantined."""
    events = [number for row in rows for number in row.numbers or []]
    reasons = {row.event.number: row.reason for row in rows if row.kind == "quarantined"}
    return sorted(events), reasons


def test_a_null_inside_quarantines_its_row_alone(spark: SparkSession, tmp_path: Path) -> None:
    """On a batch and on a stream: unless the type allows it there."""
    last = len(NULLS)
    times = {number: NOON + timedelta(seconds=number) for number in range(last + 1)}
    rows = [("ann", number, time) for number, time in times.items()]
    frame = spark.createDataFrame(rows, "user string, number bigint, ts timestamp")
    frame.write.parquet(str(tmp_path / "in"))
    end = [("ann", last + 1, NOON + timedelta(days=1))]
    spark.createDataFrame(end, frame.schema).write.mode("append").parquet(str(tmp_path / "in"))
    texts = {number: text for number, (_, text) in enumerate(NULLS.values()) if text is not None}
    good = [number for number in times if number not in texts]

    batch = sessionize(with_parts(frame), NESTED, with_rejected=True).collect()
    stream = with_parts(spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in")))
    run_to_files(sessionize(stream, NESTED, with_rejected=True), tmp_path)

    for found in (batch, spark.read.parquet(str(tmp_path / "out")).collect()):
        events, reasons = judged(found)
        assert good == events
        assert texts == {
            number: reason.partition(", found")[0] for number, reason in reasons.items()
        }
