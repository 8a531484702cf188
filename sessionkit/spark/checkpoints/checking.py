"""Whether a query with a spec can go on from a checkpoint."""

from sessionkit.spark.checkpoints.rules import check_checkpoint

__all__ = ["check_checkpoint"]
