"""Sessions from aggregates: their states are columns, folded by NumPy and Arrow alone."""
