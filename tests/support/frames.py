"""Compare frames of Spark."""

from chispa import assert_df_equality
from pyspark.sql import DataFrame


def assert_same_rows(expected: DataFrame, found: DataFrame) -> None:
    """Check that two frames have the same columns and rows, in any order; show rows that differ."""
    assert_df_equality(expected, found, ignore_row_order=True, ignore_nullable=True)
