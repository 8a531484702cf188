"""The Python models of the how-to about dbt, run on Spark as dbt runs a model."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.frames import assert_same_rows
from tests.support.pages import BLOCK, ROOT

PAGE: Final = ROOT / "docs" / "how-to" / "dbt.md"
BY_DBT: Final = "# not run here: dbt runs it\n"
VIEWS, TABLES = "views", ("all_visits", "visits", "visits__dbt_tmp")
MONDAY: Final = datetime(2026, 3, 9, tzinfo=UTC)
COLUMNS: Final = ["user_id", "session_start", "session_end", "pages", "landing"]


class Config:
    """Settings of a model: it sets some by a call, and asks for those of its YAML file."""

    def __init__(self, **of_the_file: str) -> None:
        self.of_the_file = of_the_file
        self.set: dict[str, str] = {}

    def __call__(self, **settings: str) -> None:
        self.set = settings

    def get(self, key: str, default: Any = None) -> Any:
        return self.of_the_file.get(key, default)


class This:
    """The table of a model, of which dbt promises the text."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class Dbt:
    """What dbt passes to a model as `dbt`; the code that it compiles has one of the same names."""

    def __init__(self, spark: SparkSession, name: str, **of_the_file: str) -> None:
        self.ref = spark.table
        self.this = This(name)
        self.config = Config(**of_the_file)
        self.is_incremental = spark.catalog.tableExists(name)


def models() -> list[Any]:
    """Return the function of each model of the page, from modules of their own."""
    found = []
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if block.startswith(BY_DBT):
            module: dict[str, Any] = {}
            exec(block, module)  # noqa: S102 (our own docs)
            found.append(module["model"])
    return found


def run(spark: SparkSession, model: Any, name: str, **of_the_file: str) -> None:
    """Run a model and keep its rows as dbt-spark does: under another name first, to add them."""
    dbt = Dbt(spark, name, **of_the_file)
    rows: DataFrame = model(dbt, spark)
    if dbt.config.set["materialized"] == "table":
        rows.write.mode("overwrite").saveAsTable(name)
        return
    assert {"materialized": "incremental", "incremental_strategy": "append"} == dbt.config.set
    first = f"{name}__dbt_tmp" if dbt.is_incremental else name
    rows.write.mode("overwrite").saveAsTable(first)
    if dbt.is_incremental:
        spark.table(first).select(spark.table(name).columns).write.insertInto(name)


@pytest.fixture
def views(spark: SparkSession) -> Iterator[None]:
    """Give dbt a view of a few hundred random events, and no table."""
    random = Random(11)
    rows = [
        (
            f"user {random.randrange(8)}",
            MONDAY + timedelta(minutes=random.randrange(2000)),
            f"/{random.randrange(5)}",
        )
        for _ in range(300)
    ]
    spark.createDataFrame(rows, "user_id string, ts timestamp, url string").createOrReplaceTempView(
        VIEWS
    )
    yield
    spark.catalog.dropTempView(VIEWS)
    for name in TABLES:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.long
@pytest.mark.usefixtures("views")
def test_incremental_runs_give_the_rows_of_one_batch(spark: SparkSession) -> None:
    """At any instants; a run that comes again adds nothing."""
    whole, incremental = models()
    run(spark, whole, "all_visits")
    counts = []
    for hours in (7, 7, 19.25, 72):
        until = (MONDAY + timedelta(hours=hours)).isoformat()
        run(spark, incremental, "visits", until=until)
        counts.append(spark.table("visits").count())

    expected, found = (spark.table(name).select(COLUMNS) for name in ("all_visits", "visits"))
    assert_same_rows(expected, found)
    assert 100 < expected.count()
    assert counts[0] == counts[1] < counts[2] < counts[3]
