"""
Where the rows of a query go: Spark's own sinks, and those that write whole micro-batches.

The names here are for who writes another one: a value with the methods of `TableSink`, and a
`BatchWriter` that says whether a place has a micro-batch, and writes one.
"""

from sessionkit.spark.sinks.protocol import (
    Batch,
    BatchWriter,
    Ledger,
    Rows,
    TableSink,
    from_last,
)

__all__ = ["Batch", "BatchWriter", "Ledger", "Rows", "TableSink", "from_last"]
