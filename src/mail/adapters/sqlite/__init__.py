"""SQLite: one file (or memory), one process."""
