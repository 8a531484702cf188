"""Specs on Spark: the only package that imports pyspark."""

from sessionkit._counts import Counts
from sessionkit.spark._checkpoint import check_checkpoint
from sessionkit.spark._progress import batch_counts
from sessionkit.spark._sessionize import sessionize

__all__ = ["Counts", "batch_counts", "check_checkpoint", "sessionize"]
