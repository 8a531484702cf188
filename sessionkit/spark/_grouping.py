"""
Group rows and keys by bucket.

Spark sends a row to the partition `pmod(hash(label), partitions)`. With bucket numbers as labels,
64 buckets would land in only about 54 of 200 partitions, and two partitions would split the load 36
to 28. So bucket `b` gets the label whose hash is `b`: its partition is `b mod partitions`, for any
number of partitions. A label depends only on the bucket, never on a session setting. If Spark ever
changes its hash, only the balance suffers.

The hash is Austin Appleby's 32-bit MurmurHash3 of a four-byte block with seed 42, as in Spark's SQL
function `hash`; each of its steps can be inverted.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final, TypeVar

import attrs
import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from sessionkit._arguments import quoted
from sessionkit._arrays import key_columns, whole
from sessionkit.spark._sail import hash_on_sail
from sessionkit.spark._settings import PARTITIONS
from sessionkit.spec.base import AnySpec
from sessionkit.spec.options import BUCKETS, buckets_for
from sessionkit.state._scalars import DecimalType
from sessionkit.state._types import FieldType, key_form, stored_numbers

SEED: Final = 42
BLOCK_BYTES: Final = 4
WORD: Final = 2**32
C1, C2, C3, C4 = 0xCC9E2D51, 0x1B873593, 0x85EBCA6B, 0xC2B2AE35
FIVE, ADDEND = 5, 0xE6546B64
BUCKET: Final = "bucket"

A = TypeVar("A", bound=AnySpec)


def bucket_label(bucket: int) -> int:
    """Return the signed 32-bit integer that Spark hashes to the bucket's number."""
    mixed = _undo_final_mix(bucket) ^ BLOCK_BYTES
    mixed = _rotate_right((mixed - ADDEND) * _inverse(FIVE) % WORD, 13) ^ SEED
    word = _rotate_right(mixed * _inverse(C2) % WORD, 15) * _inverse(C1) % WORD
    return word - WORD if word >= WORD // 2 else word


@cache
def _labels(bucket_count: int) -> tuple[int, ...]:
    return tuple(map(bucket_label, range(bucket_count)))


def label_of(bucket: Column, bucket_count: int) -> Column:
    """Return the label of a bucket number: Spark groups by it."""
    labels = F.array(*map(F.lit, _labels(bucket_count)))
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


def for_stream(spec: A, spark: SparkSession) -> A:
    """Return a spec with the bucket count for a session's streams; a count in the spec wins."""
    setting = spark.conf.get(PARTITIONS) or ""  # a platform may say "auto"
    return with_buckets(spec, buckets_for(int(setting)) if setting.isdecimal() else BUCKETS)


def with_buckets(spec: A, count: int) -> A:
    """Return a spec with a bucket count; a count in the spec wins."""
    if spec.storage.bucket_count is not None:
        return spec
    return attrs.evolve(spec, storage=attrs.evolve(spec.storage, bucket_count=count))


def bucket_number(spec: AnySpec, bucket_count: int) -> Column:
    """Return the bucket number of each row; equal keys share it, whatever the column types."""
    return bucket_of_forms(spec, _forms(spec), bucket_count)


def hash_of_keys(spec: AnySpec) -> Column:
    """Return a hash of each row's key on Sail; equal keys share it, whatever their types."""
    return hash_on_sail(*_hashed(spec, _forms(spec)))


def bucket_of_forms(spec: AnySpec, forms: Sequence[Column], bucket_count: int) -> Column:
    """Return the bucket number of keys, from the values by which keys are hashed."""
    return F.pmod(F.xxhash64(*_hashed(spec, forms)), F.lit(bucket_count)).cast("int")


def _forms(spec: AnySpec) -> list[Column]:
    return [
        F.expr(key_form(field.type).made_by.format(quoted(field.name))) for field in spec.key_fields
    ]


def _hashed(spec: AnySpec, forms: Sequence[Column]) -> list[Column]:
    # Equal decimals of any scale, as numbers or text, round to the same double.
    return [
        form.cast("double") if isinstance(field.type, DecimalType) else form
        for field, form in zip(spec.key_fields, forms, strict=True)
    ]


def key_forms(spec: AnySpec, rows: pa.Table) -> list[pa.Array]:
    """Return the values by which keys are hashed, for each key column."""
    return [
        _form(field.type, column)
        for field, column in zip(spec.key_fields, key_columns(rows), strict=True)
    ]


def _form(kind: FieldType, column: pa.ChunkedArray) -> pa.Array:
    form = key_form(kind)
    if form.of is not None:
        return pa.array(map(form.of, column.to_pylist()), pa.string())
    return whole(stored_numbers(column) if pa.types.is_temporal(column.type) else column)


def label_of_key(spec: AnySpec, key: pa.Table) -> Column:
    """Return the label of the bucket of a key, a table of one row."""
    values = [form[0].as_py() for form in key_forms(spec, key)]
    kinds = [key_form(field.type) for field in spec.key_fields]
    forms = [
        F.lit(bytearray(value) if isinstance(value, bytes) else value).cast(form.sql)
        for value, form in zip(values, kinds, strict=True)
    ]
    return label_of(bucket_of_forms(spec, forms, spec.storage.buckets), spec.storage.buckets)
