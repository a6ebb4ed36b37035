"""Projects of users: their files (`mail init`), and what of them is deployed to AWS (`mail build`)."""
