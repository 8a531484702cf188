"""
The labels of the buckets: numbers that Spark's shuffle distributes evenly.

Spark sends a row to the partition `pmod(hash(label), partitions)`. If the labels were the bucket
numbers, 64 buckets would land in only about 54 of 200 partitions, and two partitions would split
the load 36 to 28. So bucket `b` gets the label whose hash is `b`: its partition is then
`b mod partitions`, for any number of partitions. A label depends on the bucket alone, never on a
session setting. If Spark ever changes its hash, only the balance suffers.

The hash is the 32-bit MurmurHash3 by Austin Appleby, over one block of four bytes with seed 42,
as in Spark's SQL function `hash`; each of its steps can be inverted.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = ["bucket_label", "label_of"]

SEED: Final = 42
BLOCK_BYTES: Final = 4
WORD: Final = 2**32
C1, C2, C3, C4 = 0xCC9E2D51, 0x1B873593, 0x85EBCA6B, 0xC2B2AE35
FIVE, ADDEND = 5, 0xE6546B64


def bucket_label(bucket: int) -> int:
    """Return the signed 32-bit integer that Spark hashes to this number."""
    mixed = _undo_final_mix(bucket) ^ BLOCK_BYTES
    mixed = _rotate_right((mixed - ADDEND) * _inverse(FIVE) % WORD, 13) ^ SEED
    word = _rotate_right(mixed * _inverse(C2) % WORD, 15) * _inverse(C1) % WORD
    return word - WORD if word >= WORD // 2 else word


def label_of(bucket: Column, bucket_count: int) -> Column:
    """Return the label of each bucket number in a column."""
    labels = F.array(*(F.lit(bucket_label(number)) for number in range(bucket_count)))
    return F.element_at(labels, bucket + F.lit(1))


def _undo_final_mix(word: int) -> int:
    word ^= word >> 16
    word = word * _inverse(C4) % WORD
    word ^= (word >> 13) ^ (word >> 26)
    word = word * _inverse(C3) % WORD
    return word ^ (word >> 16)


def _rotate_right(word: int, bits: int) -> int:
    return (word >> bits | word << (32 - bits)) % WORD


def _inverse(factor: int) -> int:
    return pow(factor, -1, WORD)
