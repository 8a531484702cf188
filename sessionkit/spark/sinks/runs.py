"""
Two runs of one query at once: whose a micro-batch is, and what the other run says.

The plan of a micro-batch tells them apart. A restart repeats a micro-batch with the plan that its
checkpoint has. Another copy of the checkpoint has another plan, maybe for other rows.
"""

from hashlib import sha256

from pyspark.sql import SparkSession

from sessionkit.errors import SinkError
from sessionkit.spark._paths import literal_path


def plan_of_batch(spark: SparkSession, checkpoint: str, number: int) -> str:
    """Return a checksum of what a checkpoint says of a planned micro-batch."""
    place = f"{literal_path(checkpoint)}/offsets/{number}"
    (row,) = spark.read.text(place, wholetext=True).collect()
    return sha256(row.value.encode()).hexdigest()[:16]


def check_plan(place: str, query_id: str, number: int, plan: str, stored: str | None) -> None:
    """Check that a place has a micro-batch of this plan, as far as both are known."""
    if plan and stored and plan != stored:
        found = (
            f"{place} has other rows for micro-batch {number}: two copies of the checkpoint of the "
            f"query {query_id} were running, and the other one wrote them"
        )
        raise SinkError(found, "go on with the other copy, or restore this one and the place")


def other_run(place: str, query_id: str, number: int) -> SinkError:
    """Return the error for a micro-batch that another run of the query has written."""
    found = f"another run of the query {query_id} has written micro-batch {number} to {place}"
    return SinkError(found, "stop the other run of the query, then start this one again")
