"""An agent that analyses what it is told."""
