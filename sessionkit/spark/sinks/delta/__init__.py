"""A table of Delta Lake as a sink: each row exactly once."""
