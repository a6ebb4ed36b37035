"""The agent that leads the analysis."""
