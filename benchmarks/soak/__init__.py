"""Memory and bytes of a steady job, over an hour."""
