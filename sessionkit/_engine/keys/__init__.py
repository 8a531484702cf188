"""The engine of stateful specs: calls of `process` and `on_timer`, and the state between them."""
