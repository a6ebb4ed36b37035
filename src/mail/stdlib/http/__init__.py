"""Actions that send HTTP requests."""
