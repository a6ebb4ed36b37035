"""Views: events, tasks, turns. Smaller views stand beside their commands."""
