"""Specs in Spark Declarative Pipelines, run by the command `spark-pipelines`."""

import json
import re
import shlex
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession

from examples.visits import visits
from examples.web.events import made_up
from sessionkit import SessionRules
from sessionkit.spark import (
    Files,
    check_checkpoint,
    sessionize,
    start_query,
    state_frame,
)
from tests.support.frames import assert_same_rows
from tests.support.pages import BLOCK, ROOT, run_blocks
from tests.support.pipelines import MISSING, Project, being_read
from tests.support.refusals import refusal, says
from tests.support.spark_settings import IN_PARTITIONS, changed

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

PAGE: Final = ROOT / "docs" / "how-to" / "pipelines.md"
COMMAND: Final = re.compile(r"^ *(spark-pipelines .*)$", re.MULTILINE)
YAML: Final = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
HITS: Final = "address string, agent string, at timestamp, path string, is_page boolean, "
HITS_SCHEMA: Final = HITS + "is_named boolean"
VISITS: Final = run_blocks(PAGE)["VISITS"]


MORE: Final = """
import json
from pathlib import Path

import attrs
from pyspark import pipelines
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sessionkit import SessionRules, SessionSpec
from sessionkit import SpecError
from sessionkit.spark import Files, Routes, sessionize, start_query
from sessionkit.spark.windows import tumbling

HITS = "address string, agent string, at timestamp, path string"
spark = SparkSession.active()
said = {}


def hits():
    return spark.readStream.schema(HITS).json("/data/hits")


def note(name, call):
    try:
        said[name] = str(call())
    except (PySparkException, SpecError) as refused:
        said[name] = f"{type(refused).__name__}: {refused}"
    Path("/data/said.json").write_text(json.dumps(said))


def start(sink, **options):
    frame = sessionize(hits(), VISITS, **options)
    folder = "/data/started"
    return start_query(frame, sink=sink, trigger="availableNow", checkpoint=folder, spec=VISITS)


@attrs.frozen
class Hit:
    path: str


@attrs.define
class Fragile:
    hits: int = 0

    def update(self, hit: Hit) -> None:
        if Path("/data/fails").exists():
            raise ValueError("asked to fail")
        self.hits += 1

    def merge(self, other: "Fragile") -> None:
        self.hits += other.hits


TERMS = {"keys": {"address": str}, "event_time": "at", "watermark_delay": "1 minute"}
fragile = SessionSpec.of(Fragile, **TERMS, gap="30 minutes")
idle = SessionSpec.of(
    Fragile, **TERMS, timeout=SessionRules("30 minutes", close_idle_after="1 hour")
)
from_fragile = sessionize(hits(), fragile)
to_files = sessionize(hits(), VISITS)
note("idle", lambda: sessionize(hits(), idle))
note("start_query", lambda: start(Files("parquet", "/data/started.out")))
note(
    "routes",
    lambda: start(
        Routes(session=Files("parquet", "/data/s"), rejected=Files("parquet", "/data/r")),
        with_rejected=True,
    ),
)
windows = tumbling("1 hour", event_time="at", keys="path", watermark_delay="1 minute")
note("windows", lambda: windows.agg(n="count(*)").apply(hits()).columns)


@pipelines.table
def raw():
    note("in a function", lambda: sessionize(hits(), VISITS))
    return hits()


def of_table():
    global from_table
    from_table = sessionize(spark.readStream.table("raw"), VISITS)


note("own table", of_table)
if said["own table"] == "None":

    @pipelines.table
    def visits_of_raw():
        return from_table


@pipelines.table
def tried():
    return from_fragile


pipelines.create_sink("files", "parquet", {"path": "/data/files"})


@pipelines.append_flow(target="files")
def into_files():
    return to_files
"""


def page_in(folder: Path) -> Project:
    """Return the pipeline of the page in a folder, and what is tried with it."""
    text = PAGE.read_text(encoding="utf-8").replace("/data", str(folder))
    yaml, command = YAML.search(text), COMMAND.search(text)
    assert yaml
    assert command
    spec, *rest = BLOCK.findall(text)
    more = spec + MORE.replace("/data", str(folder))
    modules = {"visits": "\n".join([spec, *rest]), "more": more}
    return Project(folder / "project", yaml[1], modules, shlex.split(command[1]))


def put_hits(folder: Path, rows: list[dict[str, Any]], name: str) -> None:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(row, default=str) for row in rows]
    (folder / f"{name}.json").write_text("\n".join(lines))


def in_a_batch(spark: SparkSession, folder: Path) -> list[dict[str, Any]]:
    """Return the visits of all hits."""
    hits = spark.read.schema(HITS_SCHEMA).json(f"{folder}/hits")
    return sorted_rows(sessionize(hits, VISITS))


def sorted_rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in sorted(frame.collect(), key=lambda row: row.session_id)]


def test_what_would_never_end_is_refused_while_a_pipeline_is_read(spark: SparkSession) -> None:
    """What closes sessions in processing time; outside of a pipeline it may run."""
    rates = spark.readStream.format("rate").load()
    seconds = rates.selectExpr(
        "cast(value as string) user_id", "timestamp ts", "'/' url", "1D seconds"
    )
    rules = SessionRules("30 minutes", close_idle_after="1 hour")
    idle = attrs.evolve(visits, timeout=rules)

    with being_read():
        text = refusal(sessionize, seconds, idle)
        assert sessionize(seconds, visits).isStreaming

    assert says(text, "pipeline", "never end", "`clock=`")
    assert sessionize(seconds, idle).isStreaming


def test_a_pipeline_starts_its_queries_itself(spark: SparkSession, tmp_path: Path) -> None:
    """So `start_query` is refused; by hand, Spark would start a second query at every run."""
    rates = spark.readStream.format("rate").load()
    named = {"sink": Files("parquet", tmp_path), "trigger": "1 minute", "checkpoint": tmp_path}

    with being_read():
        text = refusal(start_query, rates, **named)

    assert says(text, "`start_query`", "pipeline", "@pipelines.table")


class Runs:
    """Three runs of the page's pipeline, and of what else is tried, with new files before each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = page_in(folder)
        (folder / "clock").mkdir()
        rows = made_up(30).to_pylist()
        rejected = {**rows[0], "address": None}
        third = len(rows) // 3
        parts = [rows[:third], [*rows[third : 2 * third], rejected], rows[2 * third :]]
        self.codes, self.said, self.noted = list[int](), list[str](), list[dict[str, str]]()
        for number, part in enumerate(parts):
            put_hits(folder / "hits", part, str(number))
            if number == 1:
                (folder / "fails").touch()
            if number == 2:
                (folder / "fails").unlink()
                (folder / "clock" / "0.json").write_text(json.dumps({"at": "2026-03-03 12:00:00"}))
            code, said = self.project.run()
            self.codes.append(code)
            self.said.append(said)
            assert (folder / "storage").exists(), said
            self.noted.append(json.loads((folder / "said.json").read_text()))
            shutil.copytree(folder / "storage", folder / f"storage-{number}")

    def table(self, spark: SparkSession, name: str) -> DataFrame:
        return spark.read.parquet(f"{self.folder}/tables/{name}")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("pipeline"))


@pytest.mark.long
class TestThreeRuns:
    """
    Each starts a Spark of its own, so all tests share them.

    No quick test runs one: the start alone takes longer than such a test may.
    """

    def test_the_rows_of_all_runs_are_those_of_a_batch(
        self, spark: SparkSession, runs: Runs
    ) -> None:
        """Those that are over: the watermark is a minute behind the last hit."""
        hits = spark.read.schema(HITS_SCHEMA).json(f"{runs.folder}/hits")
        last = hits.agg({"at": "max"}).head()
        assert last
        batch = in_a_batch(spark, runs.folder)
        over = [row for row in batch if row["session_end"] <= last[0] - timedelta(minutes=1)]

        found = sorted_rows(runs.table(spark, "visits"))

        assert over == found
        assert 0 < len(found) < len(batch)

    def test_what_is_open_goes_on_in_the_next_run(self, spark: SparkSession, runs: Runs) -> None:
        """A program that asks every ten minutes is open after the first run, and one row."""
        (way,) = (runs.folder / "storage-0").glob("_checkpoints/*/default/visits/visits/0")

        with changed(spark, IN_PARTITIONS):
            there = state_frame(way, VISITS, spark=spark)
            (begun,) = there.where("key.address = '10.1.0.3'").collect()
            check_checkpoint(runs.project.checkpoint("visits"), VISITS, spark=spark)

        (row,) = runs.table(spark, "visits").where("address = '10.1.0.3'").collect()
        assert begun.state.hits < row.hits == 50

    def test_a_clock_closes_what_is_open_after_the_last_run(
        self, spark: SparkSession, runs: Runs
    ) -> None:
        """Its time comes in the third run, with the last hits."""
        found = sorted_rows(runs.table(spark, "closed_visits"))

        assert in_a_batch(spark, runs.folder) == found

    def test_other_tables_read_the_kinds(self, spark: SparkSession, runs: Runs) -> None:
        """One is rejected; they run after the table that they read."""
        (rejected,) = runs.table(spark, "rejected").collect()
        counted = {
            row["kind"]: row["count"] for row in runs.table(spark, "visits_by_kind").collect()
        }

        assert ("quarantined", "`address` is null") == (rejected.kind, rejected.reason)
        assert {"quarantined": 1, "session": runs.table(spark, "visits").count()} == counted

    def test_a_sink_of_the_pipeline_has_the_rows(self, spark: SparkSession, runs: Runs) -> None:
        """One that `create_sink` makes, here files."""
        found = sorted_rows(spark.read.parquet(f"{runs.folder}/files"))

        assert sorted_rows(runs.table(spark, "visits")) == found

    def test_a_run_goes_on_after_one_that_failed(self, spark: SparkSession, runs: Runs) -> None:
        """Spark tries the table three times; the other tables of that run are whole."""
        visits, tried = runs.table(spark, "visits"), runs.table(spark, "tried")

        assert [0, 1, 0] == runs.codes, runs.said
        assert "has FAILED more than 2 times and will not be restarted" in runs.said[1]
        assert "visits has COMPLETED" in runs.said[1]
        kept = ["address", "session_start", "session_end", "hits"]
        assert_same_rows(visits.select(kept), tried.select(kept))

    def test_a_table_of_the_same_pipeline_as_a_source(
        self, spark: SparkSession, runs: Runs
    ) -> None:
        """It isn't there at first; later it's read as it was before, for nothing waits for it."""
        visits, of_raw = (runs.table(spark, name) for name in ("visits", "visits_of_raw"))
        ids = {row.session_id for row in visits.collect()}
        found = [row.session_id for row in of_raw.collect()]

        assert "TABLE_OR_VIEW_NOT_FOUND" in runs.noted[0]["own table"]
        assert ["None", "None"] == [noted["own table"] for noted in runs.noted[1:]]
        assert found
        assert len(found) == len({*found} & ids)

    def test_what_a_pipeline_cant_run_is_refused(self, runs: Runs) -> None:
        """By Spark in a query function, and by sessionkit in the module, with a hint."""
        (noted, *later) = runs.noted

        assert "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION" in noted["in a function"]
        for name, fact in (("idle", "never end"), ("start_query", "starts"), ("routes", "starts")):
            assert says(noted[name], "SpecError", fact, "pipeline", "\n\nHint: ")
        assert "'window_start'" in noted["windows"]
        assert all(noted["idle"] == one["idle"] for one in later)
