"""Each row of the tables of docs/how-to/after-sessions.md, as it stands there."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionkit import SpecError
from sessionkit import aggregates as agg
from sessionkit.spark import MemoryTable, sessions, start_query
from tests.support.pages import run_blocks

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "after-sessions.md"
AFTER, BEFORE = PAGE.read_text(encoding="utf-8").split("## Before sessions")
ROW = re.compile(r"^\| `(?P<code>[^|]+)` \| (?P<says>works|refused)", re.MULTILINE)


def rows_of(text: str) -> list[Any]:
    found = ROW.findall(text)
    return [pytest.param(*row, id=row[0][:60]) for row in found]


@pytest.fixture(scope="module")
def page(spark: SparkSession) -> dict[str, Any]:
    """Give the names that the blocks of the page define."""
    names = run_blocks(PAGE)
    assert names["spark"] is spark
    return names


def outcome(frame: DataFrame, table: str) -> str:
    """Start a query, which gives rows, or is refused by sessionkit with a hint."""
    start_query(frame, sink=MemoryTable(table), trigger="availableNow").awaitTermination()
    assert frame.sparkSession.table(table).count() > 0
    return "works"


@pytest.mark.parametrize(("code", "says"), rows_of(AFTER))
def test_an_operator_after_sessions_works_or_is_refused(
    code: str, says: str, page: dict[str, Any]
) -> None:
    """On the rows of a spec, in the same query."""
    if says == "works":
        assert says == outcome(eval(code, page), "after")  # noqa: S307 (our own page)
        return
    with pytest.raises(SpecError, match="in the same query|one stateful operator") as refused:
        outcome(eval(code, page), "after")  # noqa: S307 (our own page)
    assert "Hint: write the rows of each spec to a table" in str(refused.value)


@pytest.mark.parametrize(("code", "says"), rows_of(BEFORE))
def test_an_operator_before_sessions_works_or_is_refused(
    code: str, says: str, page: dict[str, Any]
) -> None:
    """Its rows are the events of a spec."""
    frame = eval(code, page)  # noqa: S307 (our own page)

    def run() -> str:
        visits = sessions(
            frame, keys="user", event_time="ts", gap="30 minutes", watermark_delay="10 minutes"
        )
        return outcome(visits.agg(pages=agg.count()), "before")

    if says == "works":
        assert says == run()
        return
    with pytest.raises(SpecError, match="a watermark is already declared"):
        run()


def test_the_page_has_both_tables() -> None:
    """With rows of either kind."""
    assert {"works", "refused"} == {row.values[1] for row in rows_of(AFTER)}
    assert {"works", "refused"} == {row.values[1] for row in rows_of(BEFORE)}
    assert AFTER.count("\n| `") + BEFORE.count("\n| `") == len(rows_of(AFTER)) + len(
        rows_of(BEFORE)
    )
