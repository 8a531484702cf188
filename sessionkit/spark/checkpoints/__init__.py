"""The checkpoint of a stopped query: what is in it, and whether a spec may go on from it."""
