"""The query that the picture of the live view shows."""

from pyspark.sql import SparkSession

from examples.watched_query import VISITS, View, Visit, views
from sessionkit.spark import sessionize
from sessionkit.testing import SessionDriver, at


def test_a_broken_page_is_rejected_and_the_visit_goes_on() -> None:
    """So the picture has something to show among the rejected rows."""
    driver = SessionDriver(VISITS)
    for second, page in enumerate(["/0", "/broken", "/1"]):
        driver.add("user-1", at(f"12:00:0{second}"), View(page))
    driver.run_batch()
    driver.advance_watermark_to(at("12:00:10"))
    driver.run_batch()

    assert [Visit(pages=2)] == driver.take_results()
    assert ["/broken"] == [one.event["page"] for one in driver.take_rejections("failed")]


def test_the_made_up_views_fit_the_spec(spark: SparkSession) -> None:
    """The stream has the columns that the spec reads."""
    found = sessionize(views(spark, 10), VISITS)

    times = ["session_start", "session_end", "last_event_time"]
    assert found.isStreaming
    assert ["user", "session_id", *times, "pages"] == found.columns
