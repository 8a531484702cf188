"""When a session or a key is over. Import the policies from `sessionkit`."""
