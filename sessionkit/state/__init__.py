"""What a user writes in the annotation of a field, besides the types of Python."""

from sessionkit.state._collections import RenamedFrom
from sessionkit.state._scalars import DecimalType

__all__ = ["DecimalType", "RenamedFrom"]
