"""What is remembered of a key after its sessions: `memory`."""
