"""The agent that leads the help desk."""
