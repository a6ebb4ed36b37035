"""MAIL 2.0: the accounts of a host, their boxes, lists, and the delivery of mail among them.

addresses ← records, agents ← accounts ← boxes, lists, swarms, webhooks ← delivery ← tasks ← host
"""

HOST = "mail2:host"
"""The place of what a host knows of itself: its name, and when to look for old mail."""

WORK = "mail2:work"
"""The place of what has to be done behind the requests, such as the rest of a delivery."""
