"""Which rows of a stream an old query has read, and whether a stream leaves them out."""

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionkit.errors import SessionkitError, SpecError, with_hint
from sessionkit.spark._plan_tree import STREAMING_LEAF, PlanNode, analyzed_plan, plan_tree

PATHS: Final = ("_metadata.file_path", "file_path")
PLACES: Final = (
    ("topic", "partition", "offset"),
    ("kafka_topic", "kafka_partition", "kafka_offset"),
)
SAY_SO: Final = (
    "call `seed.unread` right after the source, or `seed.unread(frame, None)` if the options of "
    "the source leave out what the old query has read"
)


def is_of_files(offset: str) -> bool:
    """Return whether an offset, as Spark writes it down, is that of a file source."""
    found: Any = json.loads(offset)
    return isinstance(found, dict) and isinstance(found.get("logOffset"), int)


def without_files(rows: DataFrame, taken: Sequence[str]) -> DataFrame:
    """Return the rows of a file source without those of some files."""
    (path,) = _first(rows, [(path,) for path in PATHS], "file")
    # A local file has three slashes in Spark's log, and one as the path of a row.
    local = [path.replace("file:///", "file:/", 1) for path in taken]
    return rows.where(~path.isin(sorted({*taken, *local}))) if taken else rows


def without_messages(rows: DataFrame, offset: str) -> DataFrame:
    """Return the rows of a Kafka source without those before an offset."""
    ends = _ends(offset)
    if ends is None:
        found = f"what the old query has read can't be told apart: it stopped at {offset}"
        raise SessionkitError(with_hint(found, SAY_SO))
    topic, partition, at = _first(rows, PLACES, "Kafka topic")
    if not ends:
        return rows
    known = F.create_map(*(F.lit(part) for end in ends.items() for part in end))
    end = F.try_element_at(known, F.concat_ws("/", topic, partition.cast("string")))
    return rows.where(end.isNull() | (at >= end))


def _ends(offset: str) -> dict[str, int] | None:
    """Return the first unread offset of each partition; None if it isn't an offset of Kafka's."""
    topics: Any = json.loads(offset)
    if not (isinstance(topics, dict) and all(isinstance(one, dict) for one in topics.values())):
        return None
    return {
        f"{topic}/{place}": end for topic, ends in topics.items() for place, end in ends.items()
    }


def _first(rows: DataFrame, choices: Collection[Sequence[str]], what: str) -> list[Column]:
    """Return the first choice of columns that the rows have."""
    for names in choices:
        columns = [F.col(name) for name in names]
        try:
            _ = rows.select(*columns).schema
        except PySparkException:
            continue
        return columns
    found = f"the rows don't say from which {what} they are, so those that were read stay in"
    raise SessionkitError(with_hint(found, SAY_SO))


def check_unread(events: DataFrame, marker: str) -> None:
    """Check that a stream leaves out what an old query has read."""
    try:
        root = plan_tree(analyzed_plan(events))
    except PySparkException:
        root = None
    if root is None:
        found = "the plan of the stream can't be read, so it may have rows that the seed has too"
        raise SpecError(with_hint(found, "leave line breaks out of the literals in it"))
    if not _is_unread(root, marker):
        found = "the stream may have rows that the old query has read: the seed has them already"
        hint = "write sessionize(seed.unread(events), spec, seed=seed)"
        raise SpecError(with_hint(found, f"{hint}, with what readStream gives as `events`"))


def _is_unread(node: PlanNode, marker: str) -> bool:
    if node.operator == "SubqueryAlias" and node.text == marker:
        return True
    if not node.inputs:
        return not node.operator.startswith(STREAMING_LEAF)
    return all(_is_unread(one, marker) for one in node.inputs)
