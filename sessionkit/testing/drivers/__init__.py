"""A streaming query without Spark, moved by hand."""
