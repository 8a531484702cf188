"""What a session spec may ask for besides the fold; each module contains one whole feature."""
