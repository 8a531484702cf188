"""Seeds: what a new query begins with, as values and as rows in a folder."""
