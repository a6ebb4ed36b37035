"""The agent that provides and reads tables."""
