"""Specs on Spark: the jobs, their counts and their checkpoints."""
