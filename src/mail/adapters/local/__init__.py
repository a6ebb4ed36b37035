"""The in-process queue and its workers."""
