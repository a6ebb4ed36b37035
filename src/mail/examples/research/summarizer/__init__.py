"""The agent that summarizes texts and lists their sources."""
