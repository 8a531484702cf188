"""What Spark's Python workers are spared: a search for cycles in all imports after each task."""

import gc
from functools import cache

__all__ = ["spare_imports"]


@cache
def spare_imports(stage: str) -> None:
    """
    Let the collector of cycles leave alone what this process has by now; once for each stage.

    After every task Spark's worker collects cycles, and so looks at every object of pandas, pyarrow
    and Spark: some 50 ms, in each task of each micro-batch. Call it where only a worker comes by.

    Args:
        stage: The first task of a stage may import what no other has.
    """
    del stage
    gc.collect()
    gc.freeze()
