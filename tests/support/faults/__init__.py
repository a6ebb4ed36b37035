"""Stores whose statements or requests are points of `mail.testing.faults`, for crash tests and chaos."""
