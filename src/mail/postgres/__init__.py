"""Talking to PostgreSQL: what the adapters of `stores` and `queues` share. It needs `mail[postgres]`."""
