"""Events, batches and classes made by hypothesis."""
