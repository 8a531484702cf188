"""How the buckets of a query stand, as its progress tells, and what is known of all of them."""

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from sessionkit._engine.logic import BucketStats

__all__ = ["BUCKETS", "MOST_BUCKETS", "NOTHING_KNOWN", "UNTOLD", "Standings", "read_standings"]

BUCKETS: Final = "buckets"
"""The name of what buckets say of themselves among the observed metrics."""
MOST_BUCKETS: Final = 1_024
"""Of more buckets, the text would make the progress of each micro-batch too large."""
UNTOLD: Final = "-"
"""Stands for what so many buckets would say."""
NUMBERS: Final = tuple(field.name for field in attrs.fields(BucketStats))


@attrs.frozen
class Standings:
    """
    What is known of the buckets of a query.

    A bucket that isn't called in a micro-batch hasn't changed. So what it said last still holds,
    as long as no micro-batch was missed.

    Attributes:
        count: How many buckets there are; None while nothing is known.
        known: What each bucket said last.
        from_beginning: Whether no micro-batch was missed: the other buckets remember nothing.
    """

    count: int | None = None
    known: Mapping[int, BucketStats] = attrs.field(factory=dict)
    from_beginning: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether everything is known of every bucket."""
        return self.count is not None and (self.from_beginning or len(self.known) == self.count)

    def total(self, name: str) -> int | None:
        """Return a sum over all buckets; None where it isn't known."""
        found = [getattr(one, name) for one in self.known.values()]
        return sum(found) if self.is_whole and None not in found else None

    def after(self, text: str | None, batch: int) -> "Standings":
        """
        Return what is known after a micro-batch.

        Args:
            text: What its buckets said; None where Spark didn't report it.
            batch: Its number. The first one of a query is 0, before which no bucket remembered
                anything.
        """
        if text is None or text == UNTOLD:
            return NOTHING_KNOWN
        count, said = read_standings(text)
        if batch == 0:
            return Standings(count, said, from_beginning=True)
        return Standings(count, {**self.known, **said}, self.from_beginning)


NOTHING_KNOWN: Final = Standings()


def read_standings(text: str) -> tuple[int, dict[int, BucketStats]]:
    """Return how many buckets a query has, and what those said that were called."""
    count, _, said = text.partition("|")
    return int(count), dict(_read(said))


def _read(said: str) -> Iterator[tuple[int, BucketStats]]:
    for one in filter(None, said.split(",")):
        bucket, *texts = one.split(":")
        numbers = [int(text) if text else None for text in texts]
        yield int(bucket), BucketStats(**dict(zip(NUMBERS, numbers, strict=True)))  # type: ignore[arg-type]
