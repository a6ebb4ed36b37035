"""A consultant: an agent that advises on decisions."""
