"""The agent that finds facts in the library."""
