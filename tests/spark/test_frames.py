"""What takes a frame of Spark tells a frame of pandas so, and what to pass; no JVM runs here."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from sessionkit import SchemaError
from sessionkit.spark import (
    Console,
    apply_with_state,
    bootstrap,
    sessionize,
    sessions,
    start_query,
)
from sessionkit.spark._seeds import Seed
from sessionkit.spark.dedup import drop_duplicates_by_key
from sessionkit.spark.watermarks import (
    check_watermarks,
    declare_watermark,
    declared_watermarks,
    guard_future,
)
from sessionkit.spark.windows import tumbling
from sessionkit.testing import SessionDriver, StatefulDriver
from tests.support.stateful_specs import summing
from tests.support.visits import MINUTE, NOON, SESSIONS, views

BATCHES_TOO: Final = "pass what spark.read, spark.readStream or spark.createDataFrame returns"
STREAMS: Final = "pass what spark.readStream returns, or a frame made from it"
VIEWS: Final = views(("ann", 0), ("ann", 5)).to_pandas()
WINDOWS: Final = tumbling("1 hour", event_time="at", keys="user").agg(views="count(*)")
SEED: Final = Seed("/nowhere", None)  # type: ignore[arg-type]  # nothing reads it

Call = Callable[[Any], object]
TAKERS: Final[dict[str, tuple[Call, str, str]]] = {
    "sessionize": (lambda frame: sessionize(frame, SESSIONS), "events", BATCHES_TOO),
    "apply_with_state": (lambda frame: apply_with_state(frame, summing()), "events", BATCHES_TOO),
    "sessions": (
        lambda frame: sessions(frame, keys="user", event_time="at", gap=MINUTE),
        "frame",
        BATCHES_TOO,
    ),
    "bootstrap": (lambda frame: bootstrap(frame, SESSIONS, NOON, "/x"), "history", BATCHES_TOO),
    "start_query": (
        lambda frame: start_query(frame, sink=Console(), trigger="1 minute"),
        "frame",
        STREAMS,
    ),
    "unread": (SEED.unread, "rows", STREAMS),
    "drop_duplicates": (
        drop_duplicates_by_key("user", unbounded_state=True).apply,
        "frame",
        BATCHES_TOO,
    ),
    "windows": (WINDOWS.apply, "frame", BATCHES_TOO),
    "rejected": (WINDOWS.rejected, "frame", BATCHES_TOO),
    "declare_watermark": (
        lambda frame: declare_watermark(frame, "at", MINUTE),
        "frame",
        BATCHES_TOO,
    ),
    "declared_watermarks": (declared_watermarks, "frame", BATCHES_TOO),
    "check_watermarks": (check_watermarks, "frames", BATCHES_TOO),
    "guard_future": (lambda frame: guard_future(frame, "at"), "frame", BATCHES_TOO),
}


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize(
    ("frame", "kind"), [(VIEWS, "pandas.DataFrame"), ([("ann", NOON, "/")], "list")]
)
def test_a_frame_that_is_not_of_spark_is_refused(name: str, frame: object, kind: str) -> None:
    """With what was found, and what to pass in its place."""
    call, argument, hint = TAKERS[name]
    with pytest.raises(SchemaError) as refused:
        call(frame)

    assert f"`{argument}` must be a DataFrame of Spark, found {kind}\n\nHint: {hint}" in str(
        refused.value
    )


def test_the_clock_must_be_of_spark_too() -> None:
    """It is the second frame of a call."""
    stream = type("Stream", (), {"isStreaming": True, "schema": None})()
    with pytest.raises(SchemaError, match="`clock` must be a DataFrame of Spark, found pandas"):
        sessionize(stream, SESSIONS, clock=VIEWS)


@pytest.mark.parametrize(
    ("taker", "driver"), [("sessionize", SessionDriver), ("apply_with_state", StatefulDriver)]
)
def test_the_hint_names_what_takes_rows_without_spark(taker: str, driver: Any) -> None:
    """And the driver takes them as it says."""
    with pytest.raises(SchemaError) as refused:
        TAKERS[taker][0](VIEWS)
    assert f"add_row of a {driver.__name__} takes the rows of a frame of pandas" in str(
        refused.value
    )
