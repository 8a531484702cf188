"""Spark's group state without Spark."""
