"""The agent that classifies messages of customers."""
