"""Specs on Spark: the only package that imports pyspark."""

from sessionkit._counts import Counts
from sessionkit._inspection import OpenSession
from sessionkit._keyed_inspection import StoredKey
from sessionkit.spark._apply_with_state import apply_with_state
from sessionkit.spark._checkpoint import check_checkpoint, open_sessions, stored_keys
from sessionkit.spark._progress import batch_counts
from sessionkit.spark._sessionize import sessionize

__all__ = [
    "Counts",
    "OpenSession",
    "StoredKey",
    "apply_with_state",
    "batch_counts",
    "check_checkpoint",
    "open_sessions",
    "sessionize",
    "stored_keys",
]
