"""A PostgreSQL table as a sink: each row exactly once."""
