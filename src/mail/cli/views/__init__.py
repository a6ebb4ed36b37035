"""Views for people: events, tasks, threads. Smaller views stand beside their commands."""
