"""A seed from a batch over history: where it ends, a stream goes on."""

from datetime import datetime
from functools import partial

from pyspark.sql import DataFrame

from sessionkit._engine.clocks import check_until, end_us
from sessionkit._engine.seed import SeedFormat
from sessionkit._engine.storage import logic_of
from sessionkit._instants import micros_of
from sessionkit.spark.checkpoints.seed_rows import chunks_of, chunks_schema
from sessionkit.spark.checkpoints.seeds import Seed, write_seed
from sessionkit.spark.jobs.run import memories_until
from sessionkit.spec.shared import AnySpec

__all__ = ["hand_over"]


def hand_over(history: DataFrame, spec: AnySpec, until: datetime, to: str) -> Seed:
    """
    Write what is still open at an instant, after a batch over history, as a seed for a stream.

    `sessionize(history, spec, until=until)` returns the sessions that are over by then, and a
    stream with this seed returns the others: together the rows of one batch over everything. The
    same holds for `apply_with_state` under `order="event_time"`. Under `order="arrival"` it holds
    as far as the functions don't see in how many calls events come.

    In the stream, an event of before then counts as late: the batch may have read it.

    Args:
        history: The batch; its rows at `until` and after are left out.
        spec: The spec, of the batch and of the stream.
        until: The event time at which the stream goes on, with a time zone.
        to: A folder for the seed, which must not have one yet.

    Raises:
        SpecError: The spec has no event time, or `until` has no time zone.
        SchemaError: The columns don't fit the spec.
        NotPicklableError: A function uses something that can't be sent to the executors.
        SessionkitError: There is a seed already.
    """
    check_until(spec, until)
    chunks = memories_until(history, spec, until, partial(chunks_of, spec), chunks_schema(spec))
    form = SeedFormat.of(logic_of(spec), end_us(until), micros_of(until))
    return write_seed(chunks, spec, Seed(to, form))
