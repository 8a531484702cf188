"""What isn't the core: each room stands on public names alone, and nothing imports it."""
