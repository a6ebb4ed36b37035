"""Implementations of the ports in `mail.core.task.ports`, one package per technology."""
