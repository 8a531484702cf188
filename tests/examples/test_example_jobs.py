"""The example jobs on Spark: `logins`, `silent_sensors`, `enriched_visits`."""

from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from examples import enriched_visits, logins, silent_sensors
from examples.enriched_visits import VISITS, enriched
from sessionkit.spark import sessionize


def test_logins(spark: SparkSession, tmp_path: Path) -> None:
    """Ann and cid logged out, bob was lost, and dan is still there."""
    rows = logins.run(spark, tmp_path)

    assert [
        ("ann", 1, timedelta(minutes=20), "logged out"),
        ("bob", 2, timedelta(minutes=10), "lost"),
        ("cid", 3, timedelta(minutes=7), "logged out"),
    ] == [(row.user, row.session, row.duration, row.outcome) for row in rows]


def test_silent_sensors(spark: SparkSession, tmp_path: Path) -> None:
    """The cellar falls silent, and is told of once; then it speaks again."""
    alerts = silent_sensors.run(spark, tmp_path, silence=timedelta(seconds=2))
    of_cellar = [alert for alert in alerts if alert.sensor == "cellar"]
    silent, recovered = of_cellar[:2]

    assert ("silent", "recovered") == (silent.status, recovered.status)
    assert silent.heard == recovered.heard


def test_enriched_visits(spark: SparkSession, tmp_path: Path) -> None:
    """Each visit has its section; a batch gives the same, and that which the stream has open."""
    stream = enriched_visits.run(spark, tmp_path)
    views = spark.read.parquet(str(tmp_path / "views"))
    pages = spark.read.parquet(str(tmp_path / "pages"))
    batch = sessionize(enriched(views, pages), VISITS).orderBy("user_id").collect()

    assert [
        ("ann", 3, "shop", 70.0),
        ("bob", 2, "(unknown)", 70.0),
        ("cid", 1, "home", 9.0),
    ] == [(row.user_id, row.pages, row.section, row.seconds) for row in stream]
    assert [row.asDict() for row in stream] == [row.asDict() for row in batch[:-1]]
    assert "dan" == batch[-1].user_id
