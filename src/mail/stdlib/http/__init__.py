"""Actions that ask the web."""
