"""The engine: runs the turns of agents, peers and webhooks, and submissions, as `core.decisions` decides, and commits them."""
