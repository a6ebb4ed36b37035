"""The agent that leads the research desk."""
