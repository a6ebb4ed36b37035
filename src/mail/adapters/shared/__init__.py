"""Code that several adapters share."""
