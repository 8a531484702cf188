"""Annotations for fields, in addition to Python's own types."""

from sessionkit.state._collections import RenamedFrom
from sessionkit.state._scalars import DecimalType

__all__ = ["DecimalType", "RenamedFrom"]
