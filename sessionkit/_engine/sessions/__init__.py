"""The fold of sessions: which events belong together, and what their functions make of them."""
