"""The agent that writes reports."""
