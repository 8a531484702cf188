"""Detect `spark-pipelines`, which starts and ends queries itself."""

import sys
from typing import Final

from pyspark.errors import PySparkException

REGISTRY: Final = "pyspark.pipelines.graph_element_registry"
"""Spark's module with the pipeline that is being read; loaded only in a pipeline."""


def in_pipeline() -> bool:
    """Return whether Spark is reading a declarative pipeline, which this call belongs to."""
    registry = sys.modules.get(REGISTRY)
    if registry is None:
        return False
    try:
        registry.get_active_graph_element_registry()
    except PySparkException:
        return False
    return True
