"""The engine: runs turns, deliveries, webhooks and submissions as `core.decisions` decides, and commits them."""
