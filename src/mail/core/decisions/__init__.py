"""What should happen: pure functions that return a `TaskChange`. Time and ids come from their `Clock` argument."""
