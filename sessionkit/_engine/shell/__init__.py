"""The shell: all that stands between Spark and the two folds, of sessions and of keys."""
