"""Views: events, tasks, threads. Smaller views stand beside their commands."""
