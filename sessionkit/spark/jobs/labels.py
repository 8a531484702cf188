"""
The labels of the buckets: numbers that Spark's shuffle deals out evenly.

Spark sends a row to the partition `pmod(hash(label), partitions)`. With the bucket numbers
themselves as labels, 64 buckets land in only some 54 of 200 partitions, and on two the load parts
36 to 28. So bucket `b` gets the label whose hash is `b`: then its partition is `b mod partitions`,
whatever that number is. A label depends on the bucket alone, never on a setting of the session,
and were Spark to hash otherwise one day, only the balance would suffer.

The hash is MurmurHash3 for 32 bits, by Austin Appleby, over one block of four bytes with the seed
42, as Spark's SQL function `hash` has it; each of its steps can be undone.
"""

from typing import Final

__all__ = ["bucket_label"]

SEED: Final = 42
BLOCK_BYTES: Final = 4
WORD: Final = 2**32
C1, C2, C3, C4 = 0xCC9E2D51, 0x1B873593, 0x85EBCA6B, 0xC2B2AE35
FIVE, ADDEND = 5, 0xE6546B64


def bucket_label(bucket: int) -> int:
    """Return the integer, of 32 bits and signed, that Spark hashes to this number."""
    mixed = _undo_final_mix(bucket) ^ BLOCK_BYTES
    mixed = _rotate_right((mixed - ADDEND) * _inverse(FIVE) % WORD, 13) ^ SEED
    word = _rotate_right(mixed * _inverse(C2) % WORD, 15) * _inverse(C1) % WORD
    return word - WORD if word >= WORD // 2 else word


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
