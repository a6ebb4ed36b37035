"""A weather agent, and its action, which makes the weather up."""
