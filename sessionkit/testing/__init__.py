"""Test sessions and stateful functions without a JVM and without Spark."""
