"""What should happen: pure functions that make a `TaskChange` of a task's `Draft`, which has the clock."""
