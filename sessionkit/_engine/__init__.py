"""One micro-batch of a group of keys, as Spark, the batch run and the driver all call it."""
