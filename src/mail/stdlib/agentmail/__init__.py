"""Forms with which agents send typed Agent Mail messages (`mail.agentmail`) in a task."""
