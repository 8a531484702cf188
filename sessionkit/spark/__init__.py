"""Specs on Spark, and the tools around them: the only package of the core that imports pyspark."""

from sessionkit._package import check_extra

try:
    import pyspark  # noqa: F401 (what follows needs it)
except ModuleNotFoundError:
    check_extra("spark", "pyspark", f"`{__name__}`", "or run it on a cluster, which has Spark")
    raise

from sessionkit._engine.counts import Counts
from sessionkit._engine.keys.program import StoredKey
from sessionkit._engine.sessions.view import OpenSession
from sessionkit.spark._seeds import Seed, read_seed
from sessionkit.spark._settings import recommended_settings
from sessionkit.spark.checkpoints.changes import changed_keys, changed_sessions
from sessionkit.spark.checkpoints.check_state import check_checkpoint
from sessionkit.spark.checkpoints.erasing import erase_key, read_erasures
from sessionkit.spark.checkpoints.migrate import bootstrap, migrate
from sessionkit.spark.checkpoints.reading import (
    open_sessions,
    open_sessions_frame,
    stored_keys,
    stored_keys_frame,
)
from sessionkit.spark.jobs.run import apply_with_state, sessionize, sessionize_all
from sessionkit.spark.progress import Reconciliation, batch_counts, reconcile
from sessionkit.spark.query import Temporary, start_query
from sessionkit.spark.shorthand import Sessions, sessions
from sessionkit.spark.sinks import OutputMode
from sessionkit.spark.sinks.values import (
    Console,
    ExactlyOnce,
    Files,
    Foreach,
    ForeachBatch,
    Kafka,
    MemoryTable,
    Routes,
)

__all__ = [
    "Console",
    "Counts",
    "ExactlyOnce",
    "Files",
    "Foreach",
    "ForeachBatch",
    "Kafka",
    "MemoryTable",
    "OpenSession",
    "OutputMode",
    "Reconciliation",
    "Routes",
    "Seed",
    "Sessions",
    "StoredKey",
    "Temporary",
    "apply_with_state",
    "batch_counts",
    "bootstrap",
    "changed_keys",
    "changed_sessions",
    "check_checkpoint",
    "erase_key",
    "migrate",
    "open_sessions",
    "open_sessions_frame",
    "read_erasures",
    "read_seed",
    "recommended_settings",
    "reconcile",
    "sessionize",
    "sessionize_all",
    "sessions",
    "start_query",
    "stored_keys",
    "stored_keys_frame",
]
