"""What is performed: turns, deliveries, webhooks and submissions, each decided by `core.decisions` and committed."""
