"""Tests that run where Sail is installed: in its cells of the matrix, without Java."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pysail") else ["test_*.py"]
