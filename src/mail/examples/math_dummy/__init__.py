"""A math agent, and the action that calculates for it."""
