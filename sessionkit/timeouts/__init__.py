"""Timeout policies and session rules. Import them from `sessionkit`."""
