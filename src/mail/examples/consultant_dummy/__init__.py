"""An agent that advises on decisions."""
