"""Pictures of sessions and timers, for terminals and notebooks; nothing here needs Spark."""
