"""MAIL 2.0: the accounts of a host, their boxes, lists, and the delivery of mail among them.

addresses ← records, agents ← accounts ← boxes, lists, swarms, webhooks ← delivery ← tasks ← host
"""

WORK = "mail2:work"
"""The place of what has to be done behind the requests, such as the rest of a delivery."""
