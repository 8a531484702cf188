"""Specs on Spark, and the tools around them: the only package that imports pyspark."""

from sessionkit._engine.counts import Counts
from sessionkit._engine.keys.view import StoredKey
from sessionkit._engine.sessions.view import OpenSession
from sessionkit.spark.checkpoints.checking import check_checkpoint
from sessionkit.spark.checkpoints.hand_over import hand_over
from sessionkit.spark.checkpoints.reading import (
    open_sessions,
    open_sessions_frame,
    stored_keys,
    stored_keys_frame,
)
from sessionkit.spark.checkpoints.seeds import Seed, carry_over, read_seed
from sessionkit.spark.jobs.apply_with_state import apply_with_state
from sessionkit.spark.jobs.progress import batch_counts
from sessionkit.spark.jobs.sessionize import sessionize, sessionize_all
from sessionkit.spark.query.reconciling import Reconciliation, reconcile
from sessionkit.spark.query.rules import (
    OutputMode,
    OutputRule,
    QueryType,
    Sink,
    check_output,
    output_rules,
)
from sessionkit.spark.query.start import Temporary, start_query
from sessionkit.spark.sinks.delta.sink import Delta
from sessionkit.spark.sinks.native import Console, Files, Foreach, ForeachBatch, Kafka, Memory
from sessionkit.spark.sinks.once import Once
from sessionkit.spark.sinks.postgres.sink import Postgres
from sessionkit.spark.sinks.routes import Routes

__all__ = [
    "Console",
    "Counts",
    "Delta",
    "Files",
    "Foreach",
    "ForeachBatch",
    "Kafka",
    "Memory",
    "Once",
    "OpenSession",
    "OutputMode",
    "OutputRule",
    "Postgres",
    "QueryType",
    "Reconciliation",
    "Routes",
    "Seed",
    "Sink",
    "StoredKey",
    "Temporary",
    "apply_with_state",
    "batch_counts",
    "carry_over",
    "check_checkpoint",
    "check_output",
    "hand_over",
    "open_sessions",
    "open_sessions_frame",
    "output_rules",
    "read_seed",
    "reconcile",
    "sessionize",
    "sessionize_all",
    "start_query",
    "stored_keys",
    "stored_keys_frame",
]
