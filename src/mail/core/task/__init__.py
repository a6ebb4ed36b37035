"""What is stored: a task, its parts, the change that one commit makes to it, and the ports that keep it."""
