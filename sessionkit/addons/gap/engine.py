"""Let Spark or Sail count pauses and sessions: one shuffle, and NumPy in its tasks."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionkit._for_addons import check_key_and_time, hash_on_sail, is_future, is_sail, quoted
from sessionkit.addons.gap.tallies import FOLDS, REASONS, SCHEMA, TOTAL, Numbers, Tally
from sessionkit.errors import UnsupportedError

FIRST_YEAR, LAST_YEAR = 1, 9999


@attrs.frozen
class CountedPart:
    """
    The counts of a part: all events, or those with one value of `by`.

    Attributes:
        keys: The number of keys in each tenth of them.
        keys_of_one: The number of keys with one event.
        pauses: Lengths in microseconds, and for each tenth of the keys how many pauses are longer
            than a length and at most the next.
        lone: Lengths, and how many events have no other within a length, but one within the next.
        medians: The median length of sessions under each gap, in microseconds.
        unit: Of which of `UNITS` all times are multiples.
    """

    keys: list[int]
    keys_of_one: int
    pauses: tuple[Numbers, npt.NDArray[np.int64]]
    lone: tuple[Numbers, Numbers]
    medians: list[float]
    unit: int


@attrs.frozen
class Counted:
    """All counts of a frame: by part, and of rejected rows by reason."""

    parts: Mapping[str, CountedPart]
    rejected: Mapping[str, int]

    @property
    def events(self) -> bool:
        return TOTAL in self.parts


def check_frame_of(frame: DataFrame, keys: Sequence[str], event_time: str) -> None:
    check_key_and_time(frame, event_time, keys)
    if frame.isStreaming:
        found = "`frame` is a stream, and a gap is chosen from events of the past"
        raise UnsupportedError(found, "read a batch, with spark.read")


def tally_counts(rows: DataFrame, tally: Tally) -> Counted:
    """Return what a tally counts of the rows of `hashed_events`, with the exact medians."""
    found = _Found.of(rows, tally)
    if bands := found.unknown_medians():
        # The tasks disagree about a median: between theirs lies that of all.
        found.medians |= _Found.of(rows, attrs.evolve(tally, bands=bands)).medians
    return found.counted(len(tally.limits))


def hashed_events(
    frame: DataFrame,
    keys: Sequence[str],
    event_time: str,
    by: str | None,
    skew: timedelta | None,
) -> DataFrame:
    """
    Return each row as the hash of its key, and its time.

    A row that is no event has no time, and the reason in place of the key.
    """
    time, columns = F.col(quoted(event_time)), [F.col(quoted(key)) for key in keys]
    year = F.year(time)
    reason = F.when(time.isNull() | (year < FIRST_YEAR) | (year > LAST_YEAR), F.lit(1))
    if skew is not None:
        reason = reason.when(is_future(time, skew, is_batch=True), F.lit(2))
    reason = reason.when(reduce(or_, (key.isNull() for key in columns)), F.lit(3))
    part: list[Column] = []
    if by is not None:
        value = F.col(quoted(by)).cast("string")
        part = [F.coalesce(F.concat(F.lit("="), value), F.lit("null")).alias("part")]
        columns.append(part[0])
    hash_of = hash_on_sail if is_sail(frame.sparkSession) else F.xxhash64
    return frame.select(
        F.coalesce(reason.cast("long"), hash_of(*columns)).alias("key"),
        F.when(reason.isNull(), F.unix_micros(time)).alias("at"),
        *part,
    )


@attrs.define
class _Found:
    """The rows of counts, added up."""

    rows: dict[tuple[str, str], list[tuple[int, int, int]]]
    medians: dict[tuple[str, int], tuple[int, int]]

    @classmethod
    def of(cls, events: DataFrame, tally: Tally) -> "_Found":
        rows = events.repartition("key").mapInArrow(tally.__call__, SCHEMA)
        sums = rows.groupBy("part", "kind", "gap", "value").agg(F.sum("n").alias("n"))
        # Of lengths, only those in the middle are needed.
        all_of = Window.partitionBy("part", "kind", "gap")
        in_order = all_of.orderBy("value").rowsBetween(Window.unboundedPreceding, 0)
        sums = sums.select(
            "*", F.sum("n").over(in_order).alias("until"), F.sum("n").over(all_of).alias("all")
        )
        half = F.floor(F.col("all") / 2)
        is_middle = (F.col("until") >= F.col("all") - half) & (F.col("until") - F.col("n") <= half)
        found = sums.where((F.col("kind") != "length") | is_middle).collect()
        grouped, lengths = dict[tuple[str, str], Any](), dict[tuple[str, int], Any]()
        for part, kind, gap, value, n, until, every in found:
            grouped.setdefault((part, kind), []).append((gap, value, n))
            if kind == "length":
                lengths.setdefault((part, gap), []).append((value, until - n, until, every))
        return cls(grouped, {place: _middle(of) for place, of in lengths.items()})

    def unknown_medians(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return between which lengths each median lies that not all tasks have shown."""
        unknown = {}
        for part in {part for part, kind in self.rows if kind == "low"}:
            kinds = ("low", "lower", "upper", "high")
            low, lower, upper, high = (_by_gap(self.rows[part, kind]) for kind in kinds)
            for gap in low:
                first, second = self.medians[part, gap]
                if first < max(low[gap]) or second > min(high[gap]):
                    unknown[part, gap] = min(lower[gap]), max(upper[gap])
        return unknown

    def counted(self, gaps: int) -> Counted:
        reasons = _counts(self.rows.get((TOTAL, "rejected"), []))
        rejected = {name: reasons.get(code, 0) for code, name in enumerate(REASONS, start=1)}
        parts = {part for part, kind in self.rows if kind == "key"}
        return Counted({part: self._part(part, gaps) for part in parts}, rejected)

    def _part(self, part: str, gaps: int) -> CountedPart:
        keys = _counts(self.rows[part, "key"])
        pauses = self.rows.get((part, "pause"), [])
        values = np.unique(np.array([value for _, value, _ in pauses], np.int64))
        folds = np.zeros((FOLDS, len(values)), np.int64)
        for fold, value, n in pauses:
            folds[fold, np.searchsorted(values, value)] += n
        lone = self.rows.get((part, "lone"), [])
        return CountedPart(
            [keys.get(fold, 0) for fold in range(FOLDS)],
            sum(n for _, _, n in self.rows.get((part, "key of one"), [])),
            (values, folds),
            (
                np.array([value for _, value, _ in lone], np.int64),
                np.array([n for _, _, n in lone], np.int64),
            ),
            [sum(self.medians[part, gap]) / 2 for gap in range(gaps)],
            min(value for _, value, _ in self.rows[part, "unit"]),
        )


def _middle(lengths: Sequence[tuple[int, int, int, int]]) -> tuple[int, int]:
    """Return the two lengths in the middle: each with how many are shorter, and until it."""
    every = lengths[0][3]
    lower, upper = (
        next(length for length, before, until, _ in lengths if before <= rank < until)
        for rank in ((every - 1) // 2, every // 2)
    )
    return lower, upper


def _by_gap(rows: Sequence[tuple[int, int, int]]) -> dict[int, list[int]]:
    found = dict[int, list[int]]()
    for gap, value, _ in rows:
        found.setdefault(gap, []).append(value)
    return found


def _counts(rows: Sequence[tuple[int, int, int]]) -> dict[int, int]:
    return {value: n for _, value, n in rows}
