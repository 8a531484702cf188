"""The fold of keys: the calls of process and on_timer, and what is remembered between them."""
