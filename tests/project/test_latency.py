"""What the benchmark of latency makes of the broker's times; it needs no Spark for that."""

import pandas as pd

from benchmarks.latency.latencies import latencies


def test_an_event_is_there_with_the_first_row_as_late_as_it() -> None:
    """A row of a user has all events before the last one; what has no row yet doesn't count."""
    events = pd.DataFrame(
        [(1, 0, 10), (1, 1, 20), (2, 2, 30), (1, 3, 40), (2, 4, 50)],
        columns=["user", "number", "at"],
    )
    rows = pd.DataFrame(
        [(2, 2, 60), (1, 1, 70), (1, 3, 90), (1, 3, 99)], columns=["user", "last", "at"]
    )

    found = latencies("update", events, rows, first_ms=20)

    assert [70 - 20, 60 - 30, 90 - 40] == found.tolist()


def test_a_session_is_over_with_the_first_event_at_its_end() -> None:
    """Of any user; one that no event has ended doesn't count, nor one that ended too early."""
    events = pd.DataFrame(
        [(1, 0, 1000, 1001), (2, 1, 3000, 3002), (1, 2, 2500, 3003), (2, 3, 5000, 5001)],
        columns=["user", "number", "time", "at"],
    )
    rows = pd.DataFrame(
        [(1, 0, 3000, 3500), (2, 1, 5000, 5600), (3, 9, 900, 1200), (1, 2, 5001, 9000)],
        columns=["user", "last", "end", "at"],
    )

    found = latencies("close", events, rows, first_ms=2000)

    assert [3500 - 3002, 5600 - 5001] == found.tolist()
