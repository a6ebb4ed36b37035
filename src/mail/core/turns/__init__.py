"""What a running turn lends to the code that it calls: agents, actions and models."""
