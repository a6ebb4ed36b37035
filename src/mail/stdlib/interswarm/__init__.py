"""Actions that query other MAIL servers."""
