"""The rules that end sessions, each a value of one protocol."""
