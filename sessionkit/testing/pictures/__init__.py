"""Runs as pictures, and why the sessions of a key are open or closed."""
