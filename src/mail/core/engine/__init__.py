"""The engine: runs submissions and the turns of agents, peers and webhooks by `core.decisions`, and commits them."""
