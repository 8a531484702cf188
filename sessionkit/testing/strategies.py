"""
What hypothesis makes for tests of sessions, and the law that it checks.

Needs hypothesis (the extra `sessionkit[hypothesis]`); no other module of sessionkit loads it.
"""

from sessionkit.testing.generators.arrivals import Arrival, cuts, timelines
from sessionkit.testing.generators.merge_law import check_merge_law
from sessionkit.testing.generators.objects import attrs_classes, objects_of

__all__ = ["Arrival", "attrs_classes", "check_merge_law", "cuts", "objects_of", "timelines"]
