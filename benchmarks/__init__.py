"""Measures sessionkit side by side with what Spark offers, in one run: `python -m benchmarks`."""
