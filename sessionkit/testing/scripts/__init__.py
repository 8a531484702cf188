"""Tests as lists of steps, and the picture of a run that fails."""
