"""Where the rows of a query go: Spark's own sinks, and those that write whole micro-batches."""
