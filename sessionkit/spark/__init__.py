"""Specs on Spark, and the tools around them: the only package of the core that imports pyspark."""

from sessionkit._package import check_extra

try:
    import pyspark  # noqa: F401 (what follows needs it)
except ModuleNotFoundError:
    others = "[sail] for batches without Java, or run it on a cluster, which has Spark"
    check_extra("spark", "pyspark", f"`{__name__}`", others)
    raise

from sessionkit.spark._seeds import read_seed
from sessionkit.spark._settings import recommended_settings
from sessionkit.spark.checkpoints.changes import state_changes
from sessionkit.spark.checkpoints.check_state import check_checkpoint
from sessionkit.spark.checkpoints.erasing import erase_key, read_erasures
from sessionkit.spark.checkpoints.migrate import bootstrap, migrate
from sessionkit.spark.checkpoints.reading import read_state, state_frame
from sessionkit.spark.jobs.run import apply_with_state, sessionize
from sessionkit.spark.progress import Reconciliation, batch_counts, reconcile
from sessionkit.spark.query import Temporary, start_query
from sessionkit.spark.shorthand import sessions
from sessionkit.spark.sinks.values import (
    AtLeastOnce,
    AtLeastOncePerRow,
    Console,
    ExactlyOnce,
    Files,
    Kafka,
    MemoryTable,
    Routes,
)

__all__ = [
    "AtLeastOnce",
    "AtLeastOncePerRow",
    "Console",
    "ExactlyOnce",
    "Files",
    "Kafka",
    "MemoryTable",
    "Reconciliation",
    "Routes",
    "Temporary",
    "apply_with_state",
    "batch_counts",
    "bootstrap",
    "check_checkpoint",
    "erase_key",
    "migrate",
    "read_erasures",
    "read_seed",
    "read_state",
    "recommended_settings",
    "reconcile",
    "sessionize",
    "sessions",
    "start_query",
    "state_changes",
    "state_frame",
]
