"""Specs on Spark, and what stands around them: the only package that imports pyspark."""

from sessionkit._counts import Counts
from sessionkit._inspection import OpenSession
from sessionkit._keyed_inspection import StoredKey
from sessionkit.spark._apply_with_state import apply_with_state
from sessionkit.spark._checkpoint import check_checkpoint, open_sessions, stored_keys
from sessionkit.spark._output_rules import (
    OutputMode,
    OutputRule,
    QueryType,
    Sink,
    check_output,
    output_rules,
)
from sessionkit.spark._progress import batch_counts
from sessionkit.spark._sessionize import sessionize
from sessionkit.spark._sinks import Console, Files, Foreach, ForeachBatch, Kafka, Memory
from sessionkit.spark._start import Temporary, start

__all__ = [
    "Console",
    "Counts",
    "Files",
    "Foreach",
    "ForeachBatch",
    "Kafka",
    "Memory",
    "OpenSession",
    "OutputMode",
    "OutputRule",
    "QueryType",
    "Sink",
    "StoredKey",
    "Temporary",
    "apply_with_state",
    "batch_counts",
    "check_checkpoint",
    "check_output",
    "open_sessions",
    "output_rules",
    "sessionize",
    "start",
    "stored_keys",
]
