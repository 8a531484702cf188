"""
The arguments of functions and classes, checked as sessionkit checks its own: for who extends it.

A sink, a source or a preset of your own may take durations as text, say what is meant where an
argument is misspelt, and say which extra to install.
"""

from sessionkit._arguments import explained, explains
from sessionkit._installed import check_extra
from sessionkit._instants import Duration, duration

__all__ = ["Duration", "check_extra", "duration", "explained", "explains"]
