"""What crosses between Spark and Python."""
