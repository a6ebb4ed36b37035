"""Actions that look at other MAIL servers."""
