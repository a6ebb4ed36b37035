"""The agent that verifies claims."""
