"""The deployed shape on one machine, without Docker and without an account: what `mail local-aws` starts."""
