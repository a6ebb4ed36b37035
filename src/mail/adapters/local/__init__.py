"""A queue in this process, and workers that take from it."""
