"""What should happen: pure functions from a task and an occurrence to a `TaskChange`. No I/O, no asyncio, no clock."""
