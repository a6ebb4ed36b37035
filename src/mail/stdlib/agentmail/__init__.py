"""Forms with which agents send the typed messages of Agent Mail (`mail.agentmail`) inside a task."""
