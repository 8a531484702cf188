"""The features of a session spec, each in a module of its own."""
