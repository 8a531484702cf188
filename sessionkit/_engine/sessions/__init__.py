"""The fold of sessions: how events are grouped, folded and closed."""
