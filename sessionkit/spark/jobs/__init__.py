"""Specs on Spark: the jobs and their counts."""
