"""Pages of state: the memory of a bucket in parts, of which a micro-batch reads and writes few."""
