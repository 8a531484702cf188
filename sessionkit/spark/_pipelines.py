"""Whether a module is read by `spark-pipelines`, which starts and ends the queries itself."""

import sys
from typing import Final

from pyspark.errors import PySparkException

REGISTRY: Final = "pyspark.pipelines.graph_element_registry"
"""Spark's module with the pipeline whose modules are being read; loaded only in a pipeline."""


def in_pipeline() -> bool:
    """Return whether a declarative pipeline of Spark is being read, and what follows is its."""
    registry = sys.modules.get(REGISTRY)
    if registry is None:
        return False
    try:
        registry.get_active_graph_element_registry()
    except PySparkException:
        return False
    return True
