"""What a session spec may ask for beyond the fold; each module holds all of one feature."""
