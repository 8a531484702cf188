"""The shell between Spark and the two folds, of sessions and of keys."""
