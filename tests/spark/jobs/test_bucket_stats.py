"""What is known of all buckets, from what some report in each micro-batch."""

from random import Random

import pytest

from sessionkit._engine.micro_batch import BucketStats
from sessionkit.spark.progress import (
    NOT_REPORTED,
    KnownBuckets,
    read_bucket_stats,
)

COUNT = 8


def text_of(stats: dict[int, BucketStats]) -> str:
    parts = [
        ":".join("" if number is None else str(number) for number in (bucket, *numbers(one)))
        for bucket, one in stats.items()
    ]
    return f"{COUNT}|{','.join(parts)}"


def numbers(one: BucketStats) -> tuple[int | None, ...]:
    """Return the numbers of a bucket in their order."""
    return (one.open, one.buffered, one.stored_bytes, one.oldest_us, one.watermark_us)


@pytest.mark.parametrize("seed", range(5))
def test_the_sum_is_that_of_all_buckets_though_few_are_called(seed: int) -> None:
    """From the first micro-batch on; and for who comes later, once each bucket was called."""
    random, truth = Random(seed), dict.fromkeys(range(COUNT), BucketStats())
    whole, late, called_so_far = KnownBuckets(), KnownBuckets(), set[int]()
    for batch in range(30):
        called = random.sample(range(COUNT), random.randrange(3))
        stats = {
            bucket: BucketStats(
                random.randrange(9), random.randrange(9), random.randrange(99), -5, 7
            )
            for bucket in called
        }
        truth |= stats
        whole = whole.after(text_of(stats), batch)
        if batch > 10:
            late, called_so_far = late.after(text_of(stats), batch), called_so_far | set(called)

        assert sum(one.open or 0 for one in truth.values()) == whole.total("open")
        assert (len(called_so_far) == COUNT) == late.is_whole
        if late.is_whole:
            assert whole.total("stored_bytes") == late.total("stored_bytes")


@pytest.mark.parametrize("text", [None, NOT_REPORTED])
def test_totals_are_unknown_after_a_micro_batch_that_is_unknown(text: str | None) -> None:
    """Any bucket may have changed in it."""
    known = KnownBuckets().after(text_of({3: BucketStats(open=2)}), 0)

    assert 2 == known.total("open")
    assert KnownBuckets() == known.after(text, 1)
    assert known.after(text, 1).after(text_of({}), 2).total("open") is None


def test_a_query_without_a_called_bucket_is_read() -> None:
    """There are as many buckets as it says, and none has reported anything."""
    assert (64, {}) == read_bucket_stats("64|")
    assert KnownBuckets(64, {}, from_beginning=True) == KnownBuckets().after("64|", 0)
