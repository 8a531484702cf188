"""What a query needs, estimated: the rules of the estimate, not the measured costs."""

from datetime import timedelta
from typing import Any

import pytest

from sessionkit import SpecError
from sessionkit.__main__ import main
from sessionkit.sizing import BUSY, Size, size


def needed(events: float, sessions: int, **others: Any) -> Size:
    return size(events_per_second=events, open_sessions=sessions, **others)


def test_a_micro_batch_leaves_room_to_catch_up() -> None:
    for events, sessions in [(10, 100), (100_000, 5_000_000), (1_000_000, 10**9)]:
        found = needed(events, sessions, trigger="1 minute")
        assert found.trigger == timedelta(minutes=1)
        assert found.seconds <= BUSY * 60 + 0.5


def test_few_events_for_much_state_take_pages() -> None:
    assert needed(100, 2_000_000).layout == "pages"
    assert needed(100_000, 2_000_000).layout == "buckets"
    assert needed(100, 2_000_000).checkpoint_bytes < needed(100_000, 2_000_000).checkpoint_bytes


def test_the_layout_of_fewer_cpu_seconds_is_taken() -> None:
    for events in (1, 100, 10_000, 1_000_000):
        found = needed(events, 5_000_000)
        assert found.cpu <= found.other_cpu


@pytest.mark.parametrize("logic", ["functions", "aggregates"])
def test_more_of_anything_never_takes_less(logic: Any) -> None:
    sizes = [needed(10.0**n, 10 ** (n + 2), logic=logic) for n in range(1, 8)]
    for name in ("cores", "cpu", "state_bytes", "checkpoint_bytes", "memory_bytes", "buckets"):
        found = [getattr(one, name) for one in sizes]
        if name != "buckets":
            assert found == sorted(found)
        assert min(found) > 0


def test_a_bucket_holds_no_more_sessions_than_a_row_of_state_should() -> None:
    found = needed(1_000_000, 10**9)
    assert 10**9 / found.buckets <= 30_000
    assert needed(10, 100).buckets == 4 * needed(10, 100).cores


def test_a_trigger_that_no_micro_batch_can_keep_is_refused() -> None:
    with pytest.raises(SpecError, match=r"takes 0\.\d+ s without events.*\s+Hint: take at least"):
        needed(10, 100, trigger="100 ms")


@pytest.mark.parametrize("wrong", [-1, float("nan"), "9", True])
def test_a_number_that_cannot_be_is_refused(wrong: Any) -> None:
    with pytest.raises(SpecError, match="`events_per_second` must be a number from 0"):
        needed(wrong, 100)


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "--events-per-second", "100", "--open-sessions", "2000000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:22].strip() for line in lines] == [
        "layout",
        "buckets",
        "cores",
        "a micro-batch",
        "state",
        "to the checkpoint",
        "memory",
    ]
    assert lines[4].endswith("120 MB")


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "--events-per-second", "1", "--open-sessions", "1", "--trigger", "1"]) == 1
    assert "`trigger`" in capsys.readouterr().err
