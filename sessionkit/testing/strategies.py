"""
Hypothesis strategies for tests of sessions, and a check that the order of events is irrelevant.

Needs hypothesis (the extra `sessionkit-spark[hypothesis]`); no other module imports it.
"""

from sessionkit.testing.generators import Arrival, attrs_classes, cuts, objects_of, timelines
from sessionkit.testing.merge_law import check_merge_law

__all__ = ["Arrival", "attrs_classes", "check_merge_law", "cuts", "objects_of", "timelines"]
