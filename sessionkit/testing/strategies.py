"""
Hypothesis strategies for tests of sessions, and a check that the order of events is irrelevant.

Needs hypothesis (the extra `sessionkit[hypothesis]`); no other module of sessionkit imports it.
"""

from sessionkit.testing.generators.arrivals import Arrival, cuts, timelines
from sessionkit.testing.generators.merge_law import check_merge_law
from sessionkit.testing.generators.objects import attrs_classes, objects_of

__all__ = ["Arrival", "attrs_classes", "check_merge_law", "cuts", "objects_of", "timelines"]
