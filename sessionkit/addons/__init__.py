"""What isn't the core: an add-on imports public names only, and nothing imports it."""
