"""Stored state: tasks, the change that one commit makes, and the ports that store it."""
