"""Helpers for users' own code and for the layers above the core."""
