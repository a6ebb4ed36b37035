"""The agent that calculates figures."""
