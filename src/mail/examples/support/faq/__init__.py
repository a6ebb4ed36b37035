"""The agent that answers common questions."""
