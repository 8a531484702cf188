"""Read, check, change and migrate checkpoints."""
