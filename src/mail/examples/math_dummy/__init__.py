"""An agent that calculates, and the action by which it does."""
