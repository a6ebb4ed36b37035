"""The agent that judges how a customer feels."""
